//! Transactions: pipelined batches over one connection that is never pooled while in one.
//!
//! Invariants: statements of a batch reach the server in the order they were added (all are
//! prepared first, then sent without waiting); a [`Tx`] that is dropped without commit or rollback
//! closes its connection, and one whose statement failed is rolled back at once, so that its connection
//! is kept; effects and COMMIT travel together, and an effect that failed turns that COMMIT into a
//! ROLLBACK inside the server.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::pooled::Pooled;
use super::sql::{self, Sql, Statements};
use super::{Conn, Error, Meter};

/// Statements to be sent together.
#[derive(Default)]
pub(crate) struct Batch<'a> {
    items: Vec<(&'static Sql, Vec<&'a (dyn ToSql + Sync)>)>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn add(&mut self, sql: &'static Sql, params: Vec<&'a (dyn ToSql + Sync)>) {
        self.items.push((sql, params));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// What frames a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Frame {
    Begin,
    Plain,
    Commit,
}

/// An open transaction.
pub(crate) struct Tx {
    /// None once it ended.
    object: Option<Pooled>,
    statements: Statements,
    meter: Arc<Meter>,
}

type Sent<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

impl Tx {
    /// BEGIN alone.
    pub(crate) async fn begin(
        object: Pooled,
        statements: Statements,
        meter: Arc<Meter>,
    ) -> Result<Self, Error> {
        let mut tx = Self {
            object: Some(object),
            statements,
            meter,
        };
        tx.send(Frame::Begin, &Batch::new()).await?;
        Ok(tx)
    }

    /// BEGIN and a first batch, in one round trip.
    pub(crate) async fn begin_with(
        conn: Conn,
        batch: &Batch<'_>,
    ) -> Result<(Self, Vec<Vec<Row>>), Error> {
        let (object, statements, meter) = conn.into_parts();
        let mut tx = Self {
            object: Some(object),
            statements,
            meter,
        };
        let rows = tx.send(Frame::Begin, batch).await?;
        Ok((tx, rows))
    }

    /// A batch, in one round trip: the rows of each statement in order.
    pub(crate) async fn run(&mut self, batch: &Batch<'_>) -> Result<Vec<Vec<Row>>, Error> {
        self.send(Frame::Plain, batch).await
    }

    /// One statement.
    pub(crate) async fn query(
        &mut self,
        sql: &'static Sql,
        params: sql::Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        let mut batch = Batch::new();
        batch.add(sql, params.to_vec());
        Ok(self.run(&batch).await?.pop().unwrap_or_default())
    }

    /// A last batch and COMMIT, in one round trip. On an error nothing was committed, unless the
    /// connection broke: then nobody knows, and every command is safe to repeat.
    pub(crate) async fn commit_with(mut self, batch: &Batch<'_>) -> Result<Vec<Vec<Row>>, Error> {
        self.send(Frame::Commit, batch).await
    }

    /// COMMIT.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        self.commit_with(&Batch::new()).await.map(|_| ())
    }

    /// ROLLBACK.
    pub(crate) async fn rollback(mut self) {
        self.leave().await;
    }

    /// Out of the transaction, by ROLLBACK; if that is not answered, or an error spoke against the
    /// connection, by closing it.
    async fn leave(&mut self) {
        let Some(object) = self.object.as_ref().filter(|o| !o.is_spoilt()) else {
            return;
        };
        self.meter.sent(1);
        if object.batch_execute("ROLLBACK").await.is_ok() {
            drop(self.object.take());
        }
    }

    async fn send(&mut self, frame: Frame, batch: &Batch<'_>) -> Result<Vec<Vec<Row>>, Error> {
        let sent = self.try_send(frame, batch).await;
        if sent.is_err() {
            self.leave().await;
        }
        sent
    }

    async fn try_send(&mut self, frame: Frame, batch: &Batch<'_>) -> Result<Vec<Vec<Row>>, Error> {
        let Some(object) = self.object.as_ref() else {
            return Err(Error::Unavailable("the transaction has failed".into()));
        };
        let statements = self.statements;
        let framed = u64::from(frame != Frame::Plain);
        // Preparing may wait; sending must not, or the order would be lost.
        if statements == Statements::Prepared {
            for (sql, _) in &batch.items {
                let prepared = object.prepare_typed_cached(sql.text, sql.types).await;
                object.judged(prepared.map_err(Error::from))?;
            }
        }
        self.meter.sent(batch.items.len() as u64 + framed);
        let mut sent: Vec<Sent<'_>> = Vec::with_capacity(batch.items.len() + 1);
        if frame == Frame::Begin {
            sent.push(Box::pin(control(object, "BEGIN")));
        }
        for (sql, params) in &batch.items {
            sent.push(Box::pin(sql::query(object, statements, sql, params)));
        }
        if frame == Frame::Commit {
            sent.push(Box::pin(control(object, "COMMIT")));
        }
        let answers = in_order(sent).await;
        let mut answers: Vec<_> = answers.into_iter().map(|a| object.judged(a)).collect();
        let frame_answer = match frame {
            Frame::Begin => Some(answers.remove(0)),
            Frame::Commit => answers.pop(),
            Frame::Plain => None,
        };
        if frame == Frame::Commit && matches!(frame_answer, Some(Ok(_))) {
            // COMMIT was answered, by COMMIT or by ROLLBACK: clean, back to the pool. Without an
            // answer the connection is dropped open, so it is closed.
            drop(self.object.take());
        }
        // The first failure is the cause; what follows it only says that the transaction is void.
        let mut rows = Vec::with_capacity(answers.len());
        for answer in answers {
            let answer = answer?;
            self.meter.read(answer.len());
            rows.push(answer);
        }
        frame_answer.transpose()?;
        Ok(rows)
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            // Still inside the transaction: closing the connection is the one sure way out.
            object.spoil();
        }
    }
}

async fn control(object: &Pooled, command: &str) -> Result<Vec<Row>, Error> {
    object.batch_execute(command).await?;
    Ok(Vec::new())
}

/// Polls all futures in their order until all are done: the first poll of each sends its request,
/// so requests leave in this order.
async fn in_order(mut sent: Vec<Sent<'_>>) -> Vec<Result<Vec<Row>, Error>> {
    let mut answers: Vec<Option<Result<Vec<Row>, Error>>> = sent.iter().map(|_| None).collect();
    std::future::poll_fn(move |cx| {
        let mut waiting = false;
        for (future, answer) in sent.iter_mut().zip(answers.iter_mut()) {
            if answer.is_none() {
                match future.as_mut().poll(cx) {
                    Poll::Ready(done) => *answer = Some(done),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            return Poll::Pending;
        }
        Poll::Ready(answers.iter_mut().filter_map(Option::take).collect())
    })
    .await
}
