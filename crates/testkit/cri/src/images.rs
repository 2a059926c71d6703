//! Image service in which every image exists.

use proto_cri::v1::image_service_server::ImageService;
use proto_cri::v1::*;
use std::pin::Pin;
use tonic::{Request, Response, Status};

/// The image service.
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

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl ImageService for Images {
    type StreamImagesStream =
        Pin<Box<dyn futures::Stream<Item = Result<StreamImagesResponse, Status>> + Send>>;

    async fn list_images(&self, _: Request<ListImagesRequest>) -> Answer<ListImagesResponse> {
        Ok(Response::new(ListImagesResponse::default()))
    }

    async fn stream_images(
        &self,
        _: Request<StreamImagesRequest>,
    ) -> Answer<Self::StreamImagesStream> {
        Err(Status::unimplemented("stream_images"))
    }

    async fn image_status(
        &self,
        request: Request<ImageStatusRequest>,
    ) -> Answer<ImageStatusResponse> {
        let name = name_of(request.into_inner().image)?;
        Ok(Response::new(ImageStatusResponse {
            image: Some(image(&name)),
            ..ImageStatusResponse::default()
        }))
    }

    async fn pull_image(&self, request: Request<PullImageRequest>) -> Answer<PullImageResponse> {
        let name = name_of(request.into_inner().image)?;
        Ok(Response::new(PullImageResponse {
            image_ref: image(&name).id,
        }))
    }

    async fn remove_image(&self, _: Request<RemoveImageRequest>) -> Answer<RemoveImageResponse> {
        Ok(Response::new(RemoveImageResponse::default()))
    }

    async fn image_fs_info(&self, _: Request<ImageFsInfoRequest>) -> Answer<ImageFsInfoResponse> {
        Ok(Response::new(ImageFsInfoResponse::default()))
    }
}
