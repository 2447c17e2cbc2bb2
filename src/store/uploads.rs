//! Files: captures and uploads, what they are bound to, and their bytes while the database keeps
//! them (`executor.md` §9, §13).
//!
//! Bytes lie in chunks of [`CHUNK`], each written and read by a statement of its own: a slow client
//! holds no connection, and memory is bounded by one chunk. Which place keeps the bytes of a file
//! is for [`crate::blobs`] to know.
//!
//! Invariants: a row without a digest is one whose bytes still arrive, and nothing reads or binds
//! it; bytes never change once the digest is set; a row that was never bound may go at any time
//! after a day: marked as reclaimed it takes no further byte, is never made whole and never bound, and
//! its row outlives its bytes.

use serde::Serialize;
use tokio_postgres::types::Type;

use super::{Error, Sql, Store};
use crate::domain::time::At;
use crate::domain::{AccountId, ExecutorId, PublicId, RunId, UploadId};
use crate::engine::facts::Capture;

/// How many bytes one chunk has; only a file's last one has fewer.
pub const CHUNK: usize = 256 * 1024;

static CAPTURES: Sql = Sql::new(
    "uploads.captures",
    "SELECT upload_id, public_id, creator_executor_id FROM uploads
      WHERE account_id = $1 AND public_id = ANY($2) AND sha256 IS NOT NULL AND reclaimed_at IS NULL",
    &[Type::INT8, Type::UUID_ARRAY],
);

static BEGIN: Sql = Sql::new(
    "uploads.begin",
    "INSERT INTO uploads (account_id, public_id, filename, content_type, byte_size, store, creator_executor_id)
     VALUES ($1, $2, '', '', 0, $3, $4) RETURNING upload_id",
    &[Type::INT8, Type::UUID, Type::TEXT, Type::INT8],
);

/// `bound_at` and the digest are still empty: a row that a sweep took, or that another hand
/// completed, is not completed.
static COMPLETE: Sql = Sql::new(
    "uploads.complete",
    "UPDATE uploads SET filename = $3, content_type = $4, byte_size = $5, sha256 = $6
      WHERE account_id = $1 AND upload_id = $2 AND sha256 IS NULL AND reclaimed_at IS NULL
  RETURNING public_id, filename, content_type, byte_size, created_at",
    &[
        Type::INT8,
        Type::INT8,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::BYTEA,
    ],
);

static FORGET: Sql = Sql::new(
    "uploads.forget",
    "DELETE FROM uploads WHERE account_id = $1 AND upload_id = $2 AND sha256 IS NULL",
    &[Type::INT8, Type::INT8],
);

static BOUND: Sql = Sql::new(
    "uploads.bound",
    "SELECT u.upload_id, u.public_id, u.filename, u.content_type, u.byte_size, u.sha256, u.store, u.created_at
       FROM uploads u
      WHERE u.account_id = $1 AND u.public_id = $3 AND u.sha256 IS NOT NULL
        AND EXISTS (SELECT FROM upload_bindings b
                     WHERE b.account_id = u.account_id AND b.run_id = $2 AND b.upload_id = u.upload_id)",
    &[Type::INT8, Type::INT8, Type::UUID],
);

/// The row of a file that is no more.
static RECLAIMED: Sql = Sql::new(
    "uploads.reclaimed",
    "DELETE FROM uploads WHERE account_id = $1 AND upload_id = $2 AND reclaimed_at IS NOT NULL",
    &[Type::INT8, Type::INT8],
);

/// Only while its row stands, and the sweep waits for neither: bytes without a row nobody would find.
static CHUNK_PUT: Sql = Sql::new(
    "uploads.chunk_put",
    "INSERT INTO upload_chunks (account_id, upload_id, ordinal, bytes)
     SELECT $1, $2, $3, $4 FROM uploads
      WHERE account_id = $1 AND upload_id = $2 AND reclaimed_at IS NULL FOR SHARE",
    &[Type::INT8, Type::INT8, Type::INT4, Type::BYTEA],
);

static CHUNK_GET: Sql = Sql::new(
    "uploads.chunk_get",
    "SELECT bytes FROM upload_chunks WHERE account_id = $1 AND upload_id = $2 AND ordinal = $3",
    &[Type::INT8, Type::INT8, Type::INT4],
);

static CHUNKS_GONE: Sql = Sql::new(
    "uploads.chunks_gone",
    "DELETE FROM upload_chunks WHERE account_id = $1 AND upload_id = $2",
    &[Type::INT8, Type::INT8],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[
    &CAPTURES,
    &BEGIN,
    &COMPLETE,
    &FORGET,
    &RECLAIMED,
    &BOUND,
    &CHUNK_PUT,
    &CHUNK_GET,
    &CHUNKS_GONE,
];

/// Which file, and where its bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobRef {
    /// Its account.
    pub account: AccountId,
    /// Its inner id.
    pub id: UploadId,
    /// Its public id.
    pub public_id: PublicId,
    /// The column `uploads.store`: `postgres`, or an object store's URL.
    pub store: String,
}

/// A file as every door shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Upload {
    /// Its id.
    pub public_id: PublicId,
    /// Its sanitised name.
    pub filename: String,
    /// Its type, by its bytes.
    pub content_type: String,
    /// Its size.
    pub byte_size: i64,
    /// When it was staged.
    pub created_at: At,
}

/// A file that is whole, and how its bytes are found and recognised.
#[derive(Debug, Clone)]
pub struct Bound {
    /// What is shown of it.
    pub upload: Upload,
    /// Where its bytes are.
    pub blob: BlobRef,
    /// SHA-256 of its bytes.
    pub sha256: Vec<u8>,
}

/// What is known of a file once all its bytes are there.
#[derive(Debug, Clone)]
pub struct Whole {
    /// Its sanitised name.
    pub filename: String,
    /// Its type, by its bytes.
    pub content_type: &'static str,
    /// Its size.
    pub byte_size: u64,
    /// SHA-256 of its bytes.
    pub sha256: [u8; 32],
}

fn upload(row: &tokio_postgres::Row) -> Upload {
    Upload {
        public_id: PublicId(row.get("public_id")),
        filename: row.get("filename"),
        content_type: row.get("content_type"),
        byte_size: row.get("byte_size"),
        created_at: At(row.get("created_at")),
    }
}

fn size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Store {
    /// Those of the uploads that exist and are whole; asks nothing when none is named.
    ///
    /// # Errors
    /// A fault.
    pub async fn captures(
        &self,
        account: AccountId,
        ids: &[PublicId],
    ) -> Result<Vec<Capture>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.0).collect();
        let rows = self
            .conn()
            .await?
            .query(&CAPTURES, &[&account.0, &ids])
            .await?;
        Ok(rows
            .iter()
            .map(|row| Capture {
                id: UploadId(row.get(0)),
                public_id: PublicId(row.get(1)),
                creator: row.get::<_, Option<i64>>(2).map(ExecutorId),
                sealed: false,
            })
            .collect())
    }

    /// Makes the row of a capture whose bytes are about to arrive, to be kept in the place of that
    /// name: should the server die before they are all there, the sweep finds it.
    ///
    /// # Errors
    /// A fault.
    pub async fn upload_begin(
        &self,
        account: AccountId,
        creator: ExecutorId,
        public_id: PublicId,
        store: &str,
    ) -> Result<BlobRef, Error> {
        let row = self
            .conn()
            .await?
            .query_one(&BEGIN, &[&account.0, &public_id.0, &store, &creator.0])
            .await?;
        Ok(BlobRef {
            account,
            id: UploadId(row.get(0)),
            public_id,
            store: store.to_owned(),
        })
    }

    /// Marks a capture as whole; from now on it may be bound. None when its row is gone.
    ///
    /// # Errors
    /// A fault.
    pub async fn upload_complete(
        &self,
        blob: &BlobRef,
        whole: &Whole,
    ) -> Result<Option<Upload>, Error> {
        let row = self
            .conn()
            .await?
            .query_opt(
                &COMPLETE,
                &[
                    &blob.account.0,
                    &blob.id.0,
                    &whole.filename,
                    &whole.content_type,
                    &size(whole.byte_size),
                    &&whole.sha256[..],
                ],
            )
            .await?;
        Ok(row.as_ref().map(upload))
    }

    /// Removes the row of a capture that never became whole. Its bytes go first, so that a crash in
    /// between leaves a row for the sweep, never bytes without one.
    ///
    /// # Errors
    /// A fault.
    pub async fn upload_forget(&self, blob: &BlobRef) -> Result<(), Error> {
        let conn = self.conn().await?;
        conn.execute(&FORGET, &[&blob.account.0, &blob.id.0])
            .await?;
        Ok(())
    }

    /// Removes the row of a file that is marked as reclaimed; its bytes are gone.
    ///
    /// # Errors
    /// A fault.
    pub async fn upload_reclaimed(&self, blob: &BlobRef) -> Result<(), Error> {
        let conn = self.conn().await?;
        conn.execute(&RECLAIMED, &[&blob.account.0, &blob.id.0])
            .await?;
        Ok(())
    }

    /// A file that is bound to that run.
    ///
    /// # Errors
    /// A fault.
    pub async fn upload_bound(
        &self,
        account: AccountId,
        run: RunId,
        public_id: PublicId,
    ) -> Result<Option<Bound>, Error> {
        let row = self
            .conn()
            .await?
            .query_opt(&BOUND, &[&account.0, &run.0, &public_id.0])
            .await?;
        Ok(row.map(|row| Bound {
            upload: upload(&row),
            blob: BlobRef {
                account,
                id: UploadId(row.get("upload_id")),
                public_id,
                store: row.get("store"),
            },
            sha256: row.get("sha256"),
        }))
    }

    /// Writes one chunk.
    ///
    /// # Errors
    /// A fault; the sweep took the row.
    pub(crate) async fn chunk_put(
        &self,
        blob: &BlobRef,
        ordinal: i32,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let conn = self.conn().await?;
        let written = conn
            .execute(&CHUNK_PUT, &[&blob.account.0, &blob.id.0, &ordinal, &bytes])
            .await?;
        if written == 0 {
            return Err(Error::Unavailable(
                "the sweep took the row of a file that was still arriving".into(),
            ));
        }
        Ok(())
    }

    /// Reads one chunk.
    ///
    /// # Errors
    /// A fault.
    pub(crate) async fn chunk_get(
        &self,
        blob: &BlobRef,
        ordinal: i32,
    ) -> Result<Option<bytes::Bytes>, Error> {
        let row = self
            .conn()
            .await?
            .query_opt(&CHUNK_GET, &[&blob.account.0, &blob.id.0, &ordinal])
            .await?;
        Ok(row.map(|row| bytes::Bytes::copy_from_slice(row.get::<_, &[u8]>(0))))
    }

    /// Removes all chunks of a file.
    ///
    /// # Errors
    /// A fault.
    pub(crate) async fn chunks_delete(&self, blob: &BlobRef) -> Result<(), Error> {
        let conn = self.conn().await?;
        conn.execute(&CHUNKS_GONE, &[&blob.account.0, &blob.id.0])
            .await?;
        Ok(())
    }
}
