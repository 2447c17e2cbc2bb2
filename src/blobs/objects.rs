//! Bytes in an object store: S3 and what speaks its protocol, or a folder.
//!
//! An object is named by its file's public id under the configured prefix. Small files are put in
//! one request, others in parts of [`PART`]; an upload of parts that a crash left open holds bytes
//! that S3 shows to nobody, so a bucket should abort incomplete ones after a day by its life cycle.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, RetryConfig,
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::AsyncWriteExt as _;

use super::Outgoing;
use crate::config::{self, Place};
use crate::store::Error;
use crate::store::uploads::BlobRef;

/// The size of a part: the smallest that S3 takes.
const PART: usize = 5 * 1024 * 1024;
/// How many parts of a file may be on their way at once, beside the one being filled.
const PARTS: usize = 1;

/// How long S3 may take to accept a connection, and to send the next bytes.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const READ_WITHIN: Duration = Duration::from_secs(30);
/// How often, and for how long, a request that met a passing fault is sent again: a client waits.
const RETRIES: usize = 4;
const RETRY_WITHIN: Duration = Duration::from_secs(15);

/// One object store.
#[derive(Debug, Clone)]
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
}

fn fault(error: object_store::Error) -> Error {
    Error::Files(Box::new(error))
}

impl Objects {
    /// An object store; `aws` are the `AWS_*` variables.
    pub(super) fn open(
        place: &Place,
        aws: &BTreeMap<String, SecretString>,
    ) -> Result<Self, config::Error> {
        let bad = |problem: String| config::Error::new(config::BLOB_URL, problem);
        let (store, prefix): (Arc<dyn ObjectStore>, Path) = match place {
            Place::Postgres => return Err(bad("postgres is no object store".to_owned())),
            Place::S3 { bucket, prefix } => {
                let s3 = s3(bucket, aws).map_err(|e| bad(e.to_string()))?;
                let prefix = Path::parse(prefix).map_err(|e| bad(e.to_string()))?;
                (Arc::new(s3), prefix)
            }
            Place::File { path } => {
                std::fs::create_dir_all(path).map_err(|e| bad(e.to_string()))?;
                let folder = LocalFileSystem::new_with_prefix(path)
                    .map_err(|e| bad(e.to_string()))?
                    .with_fsync(true);
                (Arc::new(folder), Path::default())
            }
        };
        Ok(Self { store, prefix })
    }

    fn path(&self, blob: &BlobRef) -> Path {
        self.prefix.clone().join(blob.public_id.to_string())
    }

    pub(super) fn writer(&self, blob: &BlobRef) -> Writer {
        let path = self.path(blob);
        Writer {
            writer: Some(
                BufWriter::with_capacity(self.store.clone(), path.clone(), PART)
                    .with_max_concurrency(PARTS),
            ),
            store: self.store.clone(),
            path,
        }
    }

    pub(super) async fn read(&self, blob: &BlobRef, range: Range<u64>) -> Result<Outgoing, Error> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            ..GetOptions::default()
        };
        match self.store.get_opts(&self.path(blob), options).await {
            Ok(found) => Ok(Box::pin(found.into_stream().map_err(fault))),
            Err(object_store::Error::NotFound { .. }) => {
                Err(Error::inconsistent("uploads", "store", blob.public_id))
            }
            Err(error) => Err(fault(error)),
        }
    }

    pub(super) async fn delete(&self, blob: &BlobRef) -> Result<(), Error> {
        remove(self.store.as_ref(), &self.path(blob)).await
    }
}

async fn remove(store: &dyn ObjectStore, path: &Path) -> Result<(), Error> {
    match store.delete(path).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(fault(error)),
    }
}

fn s3(
    bucket: &str,
    aws: &BTreeMap<String, SecretString>,
) -> Result<object_store::aws::AmazonS3, object_store::Error> {
    // No bound on a whole request: a client that reads slowly holds one open.
    let options = ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT_WITHIN)
        .with_read_timeout(READ_WITHIN);
    let retry = RetryConfig {
        max_retries: RETRIES,
        retry_timeout: RETRY_WITHIN,
        ..RetryConfig::default()
    };
    let mut builder = AmazonS3Builder::new()
        .with_client_options(options)
        .with_retry(retry)
        .with_bucket_name(bucket);
    for (name, value) in aws {
        // Other AWS_* variables are for other programs.
        if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
            builder = builder.with_config(key, value.expose_secret());
        }
    }
    builder.build()
}

/// A file being written.
#[derive(Debug)]
pub(super) struct Writer {
    writer: Option<BufWriter>,
    store: Arc<dyn ObjectStore>,
    path: Path,
}

impl Writer {
    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        match &mut self.writer {
            Some(writer) => writer.put(bytes).await.map_err(fault),
            None => Err(ended()),
        }
    }

    pub(super) async fn finish(&mut self) -> Result<(), Error> {
        // Taken: what was shut down must not be aborted as open parts.
        let mut writer = self.writer.take().ok_or_else(ended)?;
        writer
            .shutdown()
            .await
            .map_err(|error| Error::Files(Box::new(error)))
    }

    pub(super) async fn abort(mut self) -> Result<(), Error> {
        match self.writer.take() {
            Some(mut writer) => writer.abort().await.map_err(fault),
            // Ended, well or not: the object may be there.
            None => remove(self.store.as_ref(), &self.path).await,
        }
    }
}

fn ended() -> Error {
    Error::Files("the file was ended already".into())
}
