//! Client of CRI's image service.

use crate::client::{Runtime, limited};
use crate::error::Result;
use crate::v1::*;
use std::time::Duration;

const SHORT: Duration = Duration::from_secs(60);

fn spec(image: &str) -> ImageSpec {
    ImageSpec {
        image: image.to_owned(),
        ..Default::default()
    }
}

impl Runtime {
    /// Lists all images.
    pub async fn images(&self) -> Result<Vec<Image>> {
        let request = limited(ListImagesRequest { filter: None }, SHORT);
        Ok(self.image().list_images(request).await?.into_inner().images)
    }

    /// Returns an image by reference; None if the runtime does not have it.
    pub async fn image_status(&self, image: &str) -> Result<Option<Image>> {
        let request = ImageStatusRequest {
            image: Some(spec(image)),
            verbose: false,
        };
        Ok(self
            .image()
            .image_status(limited(request, SHORT))
            .await?
            .into_inner()
            .image)
    }

    /// Pulls an image; returns its reference. There is no timeout: registries are slow, and the
    /// runtime aborts a pull that hangs.
    pub async fn pull(
        &self,
        image: &str,
        auth: Option<AuthConfig>,
        sandbox: Option<PodSandboxConfig>,
    ) -> Result<String> {
        let request = PullImageRequest {
            image: Some(spec(image)),
            auth,
            sandbox_config: sandbox,
        };
        Ok(self
            .image()
            .pull_image(request)
            .await?
            .into_inner()
            .image_ref)
    }

    /// Removes an image.
    pub async fn remove_image(&self, image: &str) -> Result<()> {
        let request = RemoveImageRequest {
            image: Some(spec(image)),
        };
        self.image().remove_image(limited(request, SHORT)).await?;
        Ok(())
    }

    /// Returns usage of the file systems that hold images.
    pub async fn image_filesystems(&self) -> Result<Vec<FilesystemUsage>> {
        let request = limited(ImageFsInfoRequest {}, SHORT);
        Ok(self
            .image()
            .image_fs_info(request)
            .await?
            .into_inner()
            .image_filesystems)
    }
}
