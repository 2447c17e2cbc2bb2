//! Files: captures and uploads, and what they are bound to (`executor.md` §9, §13).

use tokio_postgres::types::Type;

use super::{Error, Sql, Store};
use crate::domain::{AccountId, ExecutorId, PublicId, UploadId};
use crate::engine::facts::Capture;

static CAPTURES: Sql = Sql::new(
    "uploads.captures",
    "SELECT upload_id, public_id, creator_executor_id FROM uploads WHERE account_id = $1 AND public_id = ANY($2)",
    &[Type::INT8, Type::UUID_ARRAY],
);

/// The statements of this file.
pub static STATEMENTS: &[&Sql] = &[&CAPTURES];

impl Store {
    /// Those of the uploads that exist; asks nothing when none is named.
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
            })
            .collect())
    }
}
