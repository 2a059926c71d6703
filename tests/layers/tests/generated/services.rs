//! Writes the clients and servers of services, on top of `proto-grpc`.

use std::fmt::Write;

use prost_build::{Method, Service, ServiceGenerator};

/// The generator for prost.
pub struct ServiceWriter;

impl ServiceGenerator for ServiceWriter {
    fn generate(&mut self, service: Service, code: &mut String) {
        assert!(!service.package.is_empty(), "{}: no package", service.name);
        // Writing to a string does not fail.
        let _ = write_client(&service, code);
        let _ = write_server(&service, code);
    }
}

const ALLOWED: &str = "#![allow(dead_code, missing_docs, clippy::all)]";

fn write_client(service: &Service, code: &mut String) -> std::fmt::Result {
    let (name, module) = (&service.name, module_name(&service.name));
    let full_name = format!("{}.{}", service.package, service.proto_name);
    writeln!(code, "pub mod {module}_client {{ {ALLOWED}")?;
    service.comments.append_with_indent(1, code);
    write!(
        code,
        "#[derive(Debug, Clone)]
        pub struct {name}Client<T> {{ inner: proto_grpc::GrpcClient<T> }}
        impl<T> {name}Client<T>
        where
            T: tonic::client::GrpcService<tonic::body::Body>,
            T::Error: Into<tonic::codegen::StdError>,
            T::ResponseBody: tonic::codegen::Body<Data = bytes::Bytes> + Send + 'static,
            <T::ResponseBody as tonic::codegen::Body>::Error: Into<tonic::codegen::StdError> + Send,
        {{
            pub fn new(connection: T) -> Self {{
                Self {{ inner: proto_grpc::GrpcClient::new(connection) }}
            }}
            /// Sets the maximum size of a received message in bytes. Default: 4 MiB.
            #[must_use]
            pub fn max_decoding_message_size(self, limit: usize) -> Self {{
                Self {{ inner: self.inner.max_decoding_message_size(limit) }}
            }}
            /// Sets the maximum size of a sent message in bytes. Default: unlimited.
            #[must_use]
            pub fn max_encoding_message_size(self, limit: usize) -> Self {{
                Self {{ inner: self.inner.max_encoding_message_size(limit) }}
            }}
        "
    )?;
    for method in &service.methods {
        method.comments.append_with_indent(2, code);
        let (call, input) = match (method.client_streaming, method.server_streaming) {
            (false, false) => ("call_unary", "tonic::IntoRequest"),
            (false, true) => ("call_server_streaming", "tonic::IntoRequest"),
            (true, false) => ("call_client_streaming", "tonic::IntoStreamingRequest"),
            (true, true) => ("call_streaming", "tonic::IntoStreamingRequest"),
        };
        let received = inner_type(&method.output_type);
        let output = match method.server_streaming {
            true => format!("proto_grpc::MessageStream<{received}>"),
            false => received,
        };
        let sent = inner_type(&method.input_type);
        let (argument, convert) = match method.client_streaming {
            true => (
                format!("{input}<Message = {sent}>"),
                "into_streaming_request",
            ),
            false => (format!("{input}<{sent}>"), "into_request"),
        };
        write!(
            code,
            "pub async fn {}(&mut self, request: impl {argument})
                -> std::result::Result<tonic::Response<{output}>, tonic::Status>
            {{
                let method = proto_grpc::MethodName::new({full_name:?}, {:?}, {:?});
                self.inner.{call}(method, request.{convert}()).await
            }}
            ",
            method.name,
            method.proto_name,
            path_of(&full_name, method),
        )?;
    }
    writeln!(code, "}} }}")
}

fn write_server(service: &Service, code: &mut String) -> std::fmt::Result {
    let (name, module) = (&service.name, module_name(&service.name));
    let full_name = format!("{}.{}", service.package, service.proto_name);
    writeln!(code, "pub mod {module}_server {{ {ALLOWED}")?;
    service.comments.append_with_indent(1, code);
    writeln!(
        code,
        "#[tonic::async_trait]
        pub trait {name}: Send + Sync + 'static {{"
    )?;
    for method in &service.methods {
        write_trait_method(method, code)?;
    }
    write!(
        code,
        "}}
        /// Serves an implementation of the service.
        #[derive(Debug)]
        pub struct {name}Server<T> {{ inner: std::sync::Arc<T>, limits: proto_grpc::MessageLimits }}
        impl<T> {name}Server<T> {{
            pub fn new(inner: T) -> Self {{
                Self {{ inner: std::sync::Arc::new(inner), limits: proto_grpc::MessageLimits::default() }}
            }}
            /// Sets the maximum size of a received message in bytes. Default: 4 MiB.
            #[must_use]
            pub fn max_decoding_message_size(mut self, limit: usize) -> Self {{
                self.limits.decoding = Some(limit);
                self
            }}
            /// Sets the maximum size of a sent message in bytes. Default: unlimited.
            #[must_use]
            pub fn max_encoding_message_size(mut self, limit: usize) -> Self {{
                self.limits.encoding = Some(limit);
                self
            }}
        }}
        impl<T> Clone for {name}Server<T> {{
            fn clone(&self) -> Self {{
                Self {{ inner: self.inner.clone(), limits: self.limits }}
            }}
        }}
        impl<T> tonic::server::NamedService for {name}Server<T> {{
            const NAME: &'static str = {full_name:?};
        }}
        impl<T, B> tonic::codegen::Service<http::Request<B>> for {name}Server<T>
        where
            T: {name},
            B: tonic::codegen::Body<Data = bytes::Bytes> + Send + 'static,
            B::Error: Into<tonic::codegen::StdError> + Send + 'static,
        {{
            type Response = http::Response<tonic::body::Body>;
            type Error = std::convert::Infallible;
            type Future = proto_grpc::CallFuture;
            fn poll_ready(
                &mut self,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::result::Result<(), Self::Error>> {{
                std::task::Poll::Ready(Ok(()))
            }}
            fn call(&mut self, request: http::Request<B>) -> Self::Future {{
                let (inner, limits) = (self.inner.clone(), self.limits);
                let request = request.map(tonic::body::Body::new);
                match request.uri().path() {{
        "
    )?;
    for method in &service.methods {
        let respond = match (method.client_streaming, method.server_streaming) {
            (false, false) => "respond_unary",
            (false, true) => "respond_server_streaming",
            (true, false) => "respond_client_streaming",
            (true, true) => "respond_streaming",
        };
        writeln!(
            code,
            "{:?} => proto_grpc::{respond}(limits, request, move |request| async move {{ inner.{}(request).await }}),",
            path_of(&full_name, method),
            method.name,
        )?;
    }
    writeln!(
        code,
        "_ => proto_grpc::reject_unknown(),
        }} }} }} }}"
    )
}

fn write_trait_method(method: &Method, code: &mut String) -> std::fmt::Result {
    let (sent, received) = (
        inner_type(&method.output_type),
        inner_type(&method.input_type),
    );
    let input = match method.client_streaming {
        true => format!("proto_grpc::MessageStream<{received}>"),
        false => received,
    };
    let mut output = sent.clone();
    if method.server_streaming {
        output = format!("Self::{}Stream", method.proto_name);
        writeln!(
            code,
            "type {}Stream: tonic::codegen::tokio_stream::Stream<Item = std::result::Result<{sent}, tonic::Status>>
                + Send + 'static;",
            method.proto_name
        )?;
    }
    method.comments.append_with_indent(2, code);
    writeln!(
        code,
        "async fn {}(&self, request: tonic::Request<{input}>)
            -> std::result::Result<tonic::Response<{output}>, tonic::Status>;",
        method.name
    )
}

/// Returns a type of the package as a module inside it names it.
fn inner_type(name: &str) -> String {
    match name {
        "()" => name.to_owned(),
        _ if name.starts_with("::") => name.to_owned(),
        _ => format!("super::{name}"),
    }
}

fn path_of(service: &str, method: &Method) -> String {
    format!("/{service}/{}", method.proto_name)
}

/// Returns a name of a type as that of a module: `KvService` is `kv_service`.
fn module_name(name: &str) -> String {
    let mut module = String::new();
    for character in name.chars() {
        if character.is_ascii_uppercase() && !module.is_empty() {
            module.push('_');
        }
        module.push(character.to_ascii_lowercase());
    }
    module
}
