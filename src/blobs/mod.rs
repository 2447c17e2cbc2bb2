//! Where the bytes of files are: one interface over the database (the default), S3, and a folder
//! (`executor.md` §13, `operating.md` §3).
//!
//! A folder of its own beside `store`, which is all SQL, and `bus`, which is all Redis: this one
//! knows object stores, and reaches the database's chunks through the store. Does not know HTTP,
//! who may read a file, what is in it, or when it is reclaimed.
//!
//! Invariants:
//! - a file's row is there before its first byte, so nothing lies anywhere without a row that the
//!   sweep can find; the row names its place, so files stay readable when the configured place
//!   changes;
//! - writing and reading hold a bounded number of bytes in memory, whatever a file's size;
//! - a file's bytes are never changed, and deleting what is not there is done already.

mod chunks;
mod objects;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::stream::BoxStream;

use crate::config;
use crate::store::uploads::BlobRef;
use crate::store::{Error, Store};
use objects::Objects;

/// The place that is always there.
const POSTGRES: &str = "postgres";

/// A file's bytes on their way out; a fault in the middle ends them.
pub type Outgoing = BoxStream<'static, Result<Bytes, Error>>;

/// The bytes of files. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Blobs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    /// Where new files go.
    place: String,
    config: config::Blobs,
    /// Object stores by their URL: the configured one, and those that older rows name.
    objects: Mutex<HashMap<String, Objects>>,
}

impl Blobs {
    /// The configured place. Contacts nothing yet, except that a folder is made.
    ///
    /// # Errors
    /// A place that cannot work.
    pub fn new(config: &config::Blobs, store: Store) -> Result<Self, config::Error> {
        let place = config.place.to_string();
        let mut objects = HashMap::new();
        if config.place != config::Place::Postgres {
            objects.insert(place.clone(), Objects::open(&config.place, &config.aws)?);
        }
        Ok(Self(Arc::new(Inner {
            store,
            place,
            config: config.clone(),
            objects: Mutex::new(objects),
        })))
    }

    /// Where new files go, as a row names it.
    pub fn place(&self) -> &str {
        &self.0.place
    }

    /// Begins to write the bytes of a file whose row names [`Self::place`].
    ///
    /// # Errors
    /// [`Error::Files`] when that place cannot be used.
    pub fn writer(&self, blob: &BlobRef) -> Result<Writer, Error> {
        Ok(Writer(match self.objects(&blob.store)? {
            None => Target::Chunks(chunks::Writer::new(self.0.store.clone(), blob.clone())),
            Some(objects) => Target::Object(objects.writer(blob)),
        }))
    }

    /// Streams a part of a file that has at least `range.end` bytes. The first bytes are there when
    /// this answers, so that a file that cannot be read is an error and no answer that breaks off.
    ///
    /// # Errors
    /// A fault; [`Error::Files`] when its place cannot be used.
    pub async fn read(&self, blob: &BlobRef, range: Range<u64>) -> Result<Outgoing, Error> {
        if range.is_empty() {
            return Ok(Box::pin(futures_util::stream::empty()));
        }
        match self.objects(&blob.store)? {
            None => chunks::read(self.0.store.clone(), blob.clone(), range).await,
            Some(objects) => objects.read(blob, range).await,
        }
    }

    /// Deletes the bytes of a file whose row is gone or about to go. Repeatable.
    ///
    /// # Errors
    /// A fault; [`Error::Files`] when its place cannot be used.
    pub async fn delete(&self, blob: &BlobRef) -> Result<(), Error> {
        match self.objects(&blob.store)? {
            None => self.0.store.chunks_delete(blob).await,
            Some(objects) => objects.delete(blob).await,
        }
    }

    /// The object store that a row names; none for the database.
    fn objects(&self, place: &str) -> Result<Option<Objects>, Error> {
        if place == POSTGRES {
            return Ok(None);
        }
        let mut known = self
            .0
            .objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(objects) = known.get(place) {
            return Ok(Some(objects.clone()));
        }
        let objects = place
            .parse()
            .and_then(|parsed| Objects::open(&parsed, &self.0.config.aws))
            .map_err(|e: config::Error| Error::Files(Box::new(e)))?;
        known.insert(place.to_owned(), objects.clone());
        Ok(Some(objects))
    }
}

/// A file being written. Dropped unfinished it may leave bytes behind, which its row accounts for:
/// [`Self::abort`] removes them at once.
#[derive(Debug)]
pub struct Writer(Target);

#[derive(Debug)]
enum Target {
    Chunks(chunks::Writer),
    Object(objects::Writer),
}

impl Writer {
    /// Takes the next bytes; returns once there is room for more.
    ///
    /// # Errors
    /// A fault.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        match &mut self.0 {
            Target::Chunks(writer) => writer.write(bytes).await,
            Target::Object(writer) => writer.write(bytes).await,
        }
    }

    /// Ends the file: when this returns, all its bytes are durable.
    ///
    /// # Errors
    /// A fault; the file is then to be aborted.
    pub async fn finish(&mut self) -> Result<(), Error> {
        match &mut self.0 {
            Target::Chunks(writer) => writer.finish().await,
            Target::Object(writer) => writer.finish().await,
        }
    }

    /// Removes what was written.
    ///
    /// # Errors
    /// A fault; what is left is found by the sweep.
    pub async fn abort(self) -> Result<(), Error> {
        match self.0 {
            Target::Chunks(writer) => writer.abort().await,
            Target::Object(writer) => writer.abort().await,
        }
    }
}
