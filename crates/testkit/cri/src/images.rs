//! Image service in which every image exists.

use proto_cri::v1::*;
use tonic::Status;

/// The image service. It has no state.
pub(crate) struct Images;

fn image(name: &str) -> Image {
    let digest: u64 = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, b| {
        (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    });
    Image {
        id: format!("sha256:{digest:064x}"),
        repo_tags: vec![name.to_owned()],
        size: 1024,
        spec: Some(ImageSpec {
            image: name.to_owned(),
            ..ImageSpec::default()
        }),
        ..Image::default()
    }
}

fn name_of(spec: Option<ImageSpec>) -> Result<String, Status> {
    spec.map(|s| s.image)
        .filter(|i| !i.is_empty())
        .ok_or_else(|| Status::invalid_argument("no image"))
}

type Answer<T> = Result<T, Status>;

impl Images {
    pub(crate) fn list_images(_: ListImagesRequest) -> Answer<ListImagesResponse> {
        Ok(ListImagesResponse::default())
    }

    pub(crate) fn image_status(request: ImageStatusRequest) -> Answer<ImageStatusResponse> {
        let name = name_of(request.image)?;
        Ok(ImageStatusResponse {
            image: Some(image(&name)),
            ..ImageStatusResponse::default()
        })
    }

    pub(crate) fn pull_image(request: PullImageRequest) -> Answer<PullImageResponse> {
        let name = name_of(request.image)?;
        Ok(PullImageResponse {
            image_ref: image(&name).id,
        })
    }

    pub(crate) fn remove_image(_: RemoveImageRequest) -> Answer<RemoveImageResponse> {
        Ok(RemoveImageResponse::default())
    }

    pub(crate) fn image_fs_info(_: ImageFsInfoRequest) -> Answer<ImageFsInfoResponse> {
        Ok(ImageFsInfoResponse::default())
    }
}
