//! A page that all its readers share.
//!
//! A large page takes long to make, and a copy for each reader would take any amount of memory. So it is
//! made once, and each reader gets it in parts that are sent before the next is taken.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::Mutex;

/// Bytes of a part.
const PART_BYTES: usize = 32 << 10;

/// Marks a response that holds no memory of its own.
#[derive(Clone, Copy, Debug)]
pub struct IsShared;

/// The page of the newest version that was asked for.
#[derive(Debug)]
pub struct SharedPage<V>(Mutex<Option<(V, Bytes)>>);

/// The rest of a page.
struct Rest(Bytes);

impl<V> Default for SharedPage<V> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<V: PartialEq> SharedPage<V> {
    /// The page of `version`, which `write` makes unless it is there; `None` if that fails. One caller at
    /// a time makes it, and the others wait.
    pub(super) async fn of<E: Send + 'static>(
        &self,
        version: V,
        write: impl FnOnce() -> Result<Vec<u8>, E> + Send + 'static,
    ) -> Option<Bytes> {
        let made = &mut *self.0.lock().await;
        if let Some((_, page)) = made.as_ref().filter(|(made, _)| *made == version) {
            return Some(page.clone());
        }
        // The old page goes before the new one is made.
        *made = None;
        // This takes long: not on a thread that answers requests.
        let page = Bytes::from(tokio::task::spawn_blocking(write).await.ok()?.ok()?);
        *made = Some((version, page.clone()));
        Some(page)
    }
}

/// A response with a shared page.
pub(super) fn respond(page: Bytes, content_type: &'static str) -> Response {
    let mut response = ([(CONTENT_TYPE, content_type)], Body::new(Rest(page))).into_response();
    response.extensions_mut().insert(IsShared);
    response
}

impl http_body::Body for Rest {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = self.0.len().min(PART_BYTES);
        let part = self.0.split_to(bytes);
        Poll::Ready(Some(part).filter(|part| !part.is_empty()).map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}
