//! Health (`conventions.md` §14): no bearer needed.

use super::answers::Answer;
use super::error::Error;
use super::transport::{Call, Client};
use crate::domain::Value;

impl Client {
    /// `GET /livez`: the event loop answers.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn livez(&self) -> Result<Answer<()>, Error> {
        self.send(Call::get("/livez".to_owned())).await?.empty()
    }

    /// `GET /readyz`: the body, whatever it reports; 503 while not ready is an [`Error::Api`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn readyz(&self) -> Result<Answer<Value>, Error> {
        self.send(Call::get("/readyz".to_owned())).await?.whole()
    }
}
