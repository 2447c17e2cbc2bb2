//! Path parameters: what is no id, no key or no text names nothing, so it is the one 404
//! (`conventions.md` §4).

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::error::ApiError;

/// The parameters of a route's path, decoded. A path that cannot be decoded is absent.
#[derive(Debug)]
pub struct PathOf<T>(pub T);

impl<S, T> FromRequestParts<S> for PathOf<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Path::<T>::from_request_parts(parts, state)
            .await
            .map(|Path(value)| Self(value))
            .map_err(|_| ApiError::not_found())
    }
}
