//! Bytes in the database, in chunks: one statement a chunk, in and out, so that no connection waits
//! for a client.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures_util::stream;

use super::Outgoing;
use crate::store::uploads::{BlobRef, CHUNK};
use crate::store::{Error, Store};

/// A file being written.
#[derive(Debug)]
pub(super) struct Writer {
    store: Store,
    blob: BlobRef,
    buffer: BytesMut,
    ordinal: i32,
}

impl Writer {
    pub(super) fn new(store: Store, blob: BlobRef) -> Self {
        Self {
            store,
            blob,
            buffer: BytesMut::new(),
            ordinal: 0,
        }
    }

    pub(super) async fn write(&mut self, mut bytes: Bytes) -> Result<(), Error> {
        while !bytes.is_empty() {
            let room = CHUNK - self.buffer.len();
            let piece = bytes.split_to(room.min(bytes.len()));
            self.buffer.extend_from_slice(&piece);
            if self.buffer.len() == CHUNK {
                self.put().await?;
            }
        }
        Ok(())
    }

    pub(super) async fn finish(&mut self) -> Result<(), Error> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.put().await
    }

    pub(super) async fn abort(self) -> Result<(), Error> {
        self.store.chunks_delete(&self.blob).await
    }

    async fn put(&mut self) -> Result<(), Error> {
        self.store
            .chunk_put(&self.blob, self.ordinal, &self.buffer)
            .await?;
        self.buffer.clear();
        self.ordinal += 1;
        Ok(())
    }
}

/// Where a reading is.
struct Cursor {
    store: Store,
    blob: BlobRef,
    left: Range<u64>,
}

impl Cursor {
    /// The bytes that are wanted of the next chunk.
    async fn next(&mut self) -> Result<Bytes, Error> {
        let size = CHUNK as u64;
        let ordinal = self.left.start / size;
        let missing = || Error::inconsistent("upload_chunks", "bytes", self.blob.public_id);
        let no = i32::try_from(ordinal).map_err(|_| missing())?;
        let chunk = self
            .store
            .chunk_get(&self.blob, no)
            .await?
            .ok_or_else(missing)?;
        let base = ordinal * size;
        // Both lie within one chunk, so they fit.
        let from = usize::try_from(self.left.start - base).unwrap_or(CHUNK);
        let to = usize::try_from((self.left.end - base).min(size)).unwrap_or(CHUNK);
        if chunk.len() < to {
            return Err(missing());
        }
        self.left.start = (base + size).min(self.left.end);
        Ok(chunk.slice(from..to))
    }
}

/// Streams a part that is not empty.
pub(super) async fn read(
    store: Store,
    blob: BlobRef,
    range: Range<u64>,
) -> Result<Outgoing, Error> {
    let mut cursor = Cursor {
        store,
        blob,
        left: range,
    };
    let first = cursor.next().await?;
    Ok(Box::pin(stream::unfold(
        (Some(first), cursor),
        |(first, mut cursor)| async move {
            if let Some(first) = first {
                return Some((Ok(first), (None, cursor)));
            }
            if cursor.left.is_empty() {
                return None;
            }
            let next = cursor.next().await;
            if next.is_err() {
                cursor.left.start = cursor.left.end;
            }
            Some((next, (None, cursor)))
        },
    )))
}
