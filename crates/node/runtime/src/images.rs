//! Client of CRI's image service.

use crate::client::{Runtime, with_timeout};
use crate::error::Result;
use crate::v1::*;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

fn image_spec(image: &str) -> ImageSpec {
    ImageSpec {
        image: image.to_owned(),
        ..Default::default()
    }
}

impl Runtime {
    /// Lists all images.
    pub async fn list_images(&self) -> Result<Vec<Image>> {
        let request = with_timeout(ListImagesRequest { filter: None }, TIMEOUT);
        Ok(self
            .image_service()
            .list_images(request)
            .await?
            .into_inner()
            .images)
    }

    /// Returns an image by reference; None if the runtime does not have it.
    pub async fn image_status(&self, image: &str) -> Result<Option<Image>> {
        let request = ImageStatusRequest {
            image: Some(image_spec(image)),
            verbose: false,
        };
        Ok(self
            .image_service()
            .image_status(with_timeout(request, TIMEOUT))
            .await?
            .into_inner()
            .image)
    }

    /// Pulls an image; returns its reference. There is no timeout: registries are slow, and the
    /// runtime aborts a pull that hangs.
    pub async fn pull_image(
        &self,
        image: &str,
        auth: Option<AuthConfig>,
        sandbox: Option<PodSandboxConfig>,
    ) -> Result<String> {
        // The sandbox config lets a runtime with several handlers choose the snapshotter.
        let request = PullImageRequest {
            image: Some(image_spec(image)),
            auth,
            sandbox_config: sandbox,
        };
        Ok(self
            .image_service()
            .pull_image(request)
            .await?
            .into_inner()
            .image_ref)
    }

    /// Removes an image.
    pub async fn remove_image(&self, image: &str) -> Result<()> {
        let request = RemoveImageRequest {
            image: Some(image_spec(image)),
        };
        self.image_service()
            .remove_image(with_timeout(request, TIMEOUT))
            .await?;
        Ok(())
    }

    /// Returns usage of the file systems that hold images.
    pub async fn image_filesystems(&self) -> Result<Vec<FilesystemUsage>> {
        let request = with_timeout(ImageFsInfoRequest {}, TIMEOUT);
        Ok(self
            .image_service()
            .image_fs_info(request)
            .await?
            .into_inner()
            .image_filesystems)
    }
}
