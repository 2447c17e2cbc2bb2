//! Keyset pages: where a list goes on, in which direction, how far (`conventions.md` §7).
//!
//! Lists of provisioning are ordered by their primary key, whose first column is the account, so a
//! page of one account and a page of all are the same range scan. Positions are inner ids and stay
//! here: a cursor names the last row by its public id, and the list looks it up again.
//!
//! Invariant: the order is unique, so a page never repeats or skips a row that stays.

use tokio_postgres::types::Type;

use crate::domain::AccountId;

/// Which way a list runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    Ascending,
    /// Newest first.
    Descending,
}

/// One page of a list whose key is (account, id).
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Only that account's rows; none: every account's.
    pub account: Option<AccountId>,
    /// The key of the last row already shown.
    pub after: Option<(AccountId, i64)>,
    /// Direction.
    pub order: Order,
    /// The most rows to give.
    pub limit: i64,
}

impl Page {
    /// `$1..$5` of a [`keyset`] statement: the account range, the position, the limit.
    pub(super) fn bounds(&self) -> [i64; 5] {
        let (low, high) = self.account.map_or((i64::MIN, i64::MAX), |a| (a.0, a.0));
        let start = match self.order {
            Order::Ascending => i64::MIN,
            Order::Descending => i64::MAX,
        };
        let (account, id) = self.after.map_or((start, start), |(a, id)| (a.0, id));
        [low, high, account, id, self.limit]
    }
}

/// Parameter types of a [`keyset`] statement.
pub(super) const TYPES: &[Type] = &[Type::INT8, Type::INT8, Type::INT8, Type::INT8, Type::INT8];

/// The two statements of a keyset list: `[ascending, descending]`. Takes a name, the SELECT up to
/// its WHERE, the account column and the id column.
macro_rules! keyset {
    ($name:literal, $select:expr, $account:literal, $id:literal) => {
        [
            $crate::store::Sql::new(
                concat!($name, "_asc"),
                concat!(
                    $select,
                    " WHERE ",
                    $account,
                    " BETWEEN $1 AND $2 AND (",
                    $account,
                    ", ",
                    $id,
                    ") > ($3, $4) ORDER BY ",
                    $account,
                    ", ",
                    $id,
                    " LIMIT $5"
                ),
                $crate::store::page::TYPES,
            ),
            $crate::store::Sql::new(
                concat!($name, "_desc"),
                concat!(
                    $select,
                    " WHERE ",
                    $account,
                    " BETWEEN $1 AND $2 AND (",
                    $account,
                    ", ",
                    $id,
                    ") < ($3, $4) ORDER BY ",
                    $account,
                    " DESC, ",
                    $id,
                    " DESC LIMIT $5"
                ),
                $crate::store::page::TYPES,
            ),
        ]
    };
}
pub(super) use keyset;

impl Order {
    /// The statement of this direction.
    pub(super) fn of(self, pair: &'static [super::Sql; 2]) -> &'static super::Sql {
        match self {
            Self::Ascending => &pair[0],
            Self::Descending => &pair[1],
        }
    }
}
