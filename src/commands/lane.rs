//! Lanes: commands that write runs are executed in batches that form by themselves
//! (`architecture.md` §5).
//!
//! A run always falls into the same lane. While a lane's transaction is under way, commands that
//! arrive wait; the next transaction takes all of them, up to [`BATCH`]. With nothing waiting a
//! batch is one command and costs no delay. One batch is: lock its runs (ascending, leaving out
//! those that somebody holds), load all slices in one round trip, decide the commands (those of one
//! run in order of arrival, each seeing the effects before it), load what their consequences must see
//! in rounds of one round trip for all runs, apply and commit in one round trip, answer each.
//!
//! A run that somebody holds is taken out of the lane and done by its own *waiter*, which gathers
//! all further commands of that run: never does more than one transaction a run and replica wait
//! for the lock. A fault of a shared transaction re-runs its commands one by one. A run that does not
//! exist is not waited for.
//!
//! What may wait is bounded, on a replica and for one run: a command beyond that is refused before it
//! is queued. A command whose caller hung up is dropped while it still waits, never once it was
//! decided or waits for its run's lock.
//!
//! Does not know what the commands decide.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::{Error, RETRIES};
use crate::bus::Bus;
use crate::domain::TaskNo;
use crate::domain::hint::Hint;
use crate::engine::graph::Want;
use crate::engine::mint::Mint;
use crate::store::views::TaskView;
use crate::store::{self, First, Held, Locked, Remedy, RunTarget, RunTx, Store};
use crate::telemetry::panic_message;

/// The most commands of one transaction.
pub const BATCH: usize = 64;

/// The most commands of a replica that are queued or under way.
const QUEUED: usize = 4096;

/// The most commands that wait for one held run, so that it does not take all of [`QUEUED`].
const QUEUED_OF_RUN: usize = 1024;

/// The most connections of a replica that wait for run locks at once.
const WAITING: usize = 4;

/// A command over one run.
pub trait RunCommand: Send + 'static {
    /// What it answers.
    type Answer: Send + 'static;
    /// How it is refused.
    type Refusal: Send + 'static;

    /// The run.
    fn target(&self) -> RunTarget;

    /// What it must see at first.
    fn first(&self) -> First;

    /// The decision, on what was loaded; may be asked again if the transaction gave way.
    ///
    /// # Errors
    /// The protocol's refusal.
    fn decide(&self, locked: &mut Locked, mint: &mut Mint) -> Result<Self::Answer, Self::Refusal>;

    /// The refusal when there is no such run.
    fn no_run(&self) -> Self::Refusal;

    /// The row that the answer shows as it then stands.
    fn shows(&self, _answer: &Self::Answer) -> Option<TaskNo> {
        None
    }
}

/// An answer with the row that it shows.
#[derive(Debug)]
pub struct Done<A> {
    /// The answer.
    pub answer: A,
    /// The row.
    pub task: Option<TaskView>,
}

/// A command on its way, its types forgotten.
trait Waiting: Send {
    fn target(&self) -> RunTarget;
    fn first(&self) -> First;
    fn decide(&mut self, locked: &mut Locked, mint: &mut Mint);
    fn no_run(&mut self);
    /// Forgets a decision that was not committed.
    fn undecide(&mut self);
    /// Whether its run was held by somebody.
    fn is_undecided(&self) -> bool;
    /// Whether its caller hung up before it was ever decided.
    fn is_gone(&self) -> bool;
    fn shows(&self) -> Option<TaskNo>;
    fn answer(self: Box<Self>, task: Option<TaskView>);
    fn fail(self: Box<Self>, fault: store::Error);
}

type Reply<C> = Result<Done<<C as RunCommand>::Answer>, Error<<C as RunCommand>::Refusal>>;

struct Ticket<C: RunCommand> {
    command: C,
    decided: Option<Result<C::Answer, C::Refusal>>,
    /// Whether it was ever decided, perhaps in a transaction whose fate nobody knows.
    begun: bool,
    reply: oneshot::Sender<Reply<C>>,
    /// Its place among what may wait.
    _place: OwnedSemaphorePermit,
}

impl<C: RunCommand> Waiting for Ticket<C> {
    fn target(&self) -> RunTarget {
        self.command.target()
    }

    fn first(&self) -> First {
        self.command.first()
    }

    fn decide(&mut self, locked: &mut Locked, mint: &mut Mint) {
        self.begun = true;
        self.decided = Some(self.command.decide(locked, mint));
    }

    fn no_run(&mut self) {
        self.decided = Some(Err(self.command.no_run()));
    }

    fn undecide(&mut self) {
        self.decided = None;
    }

    fn is_undecided(&self) -> bool {
        self.decided.is_none()
    }

    fn is_gone(&self) -> bool {
        !self.begun && self.reply.is_closed()
    }

    fn shows(&self) -> Option<TaskNo> {
        match &self.decided {
            Some(Ok(answer)) => self.command.shows(answer),
            _ => None,
        }
    }

    fn answer(self: Box<Self>, task: Option<TaskView>) {
        let reply = match self.decided {
            Some(Ok(answer)) => Ok(Done { answer, task }),
            Some(Err(refusal)) => Err(Error::Refused(refusal)),
            None => return, // dropping the sender tells the caller
        };
        let _ = self.reply.send(reply); // whoever hung up needs no answer
    }

    fn fail(self: Box<Self>, fault: store::Error) {
        let _ = self.reply.send(Err(Error::Fault(fault)));
    }
}

type Queue = Vec<Box<dyn Waiting>>;

/// The lanes of one replica.
#[derive(Clone)]
pub struct Lanes {
    /// What was handed in together stays together. Never longer than there are places.
    lanes: Arc<Vec<mpsc::UnboundedSender<Queue>>>,
    places: Arc<Semaphore>,
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lanes({})", self.lanes.len())
    }
}

/// What executes batches: the parts a lane needs, and the runs that have a waiter.
#[derive(Clone)]
struct Executor {
    store: Store,
    bus: Bus,
    waiters: Arc<Mutex<HashMap<RunTarget, Queue>>>,
    /// Connections that may wait for a run's lock at once.
    waiting: Arc<Semaphore>,
}

impl Lanes {
    /// `count` lanes over that store. Each is a task that ends when the last handle is dropped.
    pub fn start(count: usize, store: Store, bus: Bus) -> Self {
        let executor = Executor {
            store,
            bus,
            waiters: Arc::default(),
            waiting: Arc::new(Semaphore::new(WAITING)),
        };
        let lanes = (0..count.max(1))
            .map(|_| {
                let (sender, receiver) = mpsc::unbounded_channel();
                tokio::spawn(drive(executor.clone(), receiver));
                sender
            })
            .collect();
        Self {
            lanes: Arc::new(lanes),
            places: Arc::new(Semaphore::new(QUEUED)),
        }
    }

    /// Executes a command; waits for its answer. One that is dropped while it is queued is not
    /// executed; once begun it runs to its end, whether or not the caller still waits.
    ///
    /// # Errors
    /// The command's refusal, or a fault; [`store::Error::Overloaded`] when too many wait already.
    pub async fn execute<C: RunCommand>(&self, command: C) -> Reply<C> {
        let lane = self.lane_of(command.target());
        let (ticket, answer) = self.ticket(command)?;
        self.lanes[lane].send(vec![ticket]).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Executes commands that came together, at most [`BATCH`]: those of one lane share a
    /// transaction, those of one run are decided in their order. One answer each, in that order, as
    /// [`execute`](Self::execute) would give it.
    pub async fn execute_all<C: RunCommand>(&self, commands: Vec<C>) -> Vec<Reply<C>> {
        debug_assert!(commands.len() <= BATCH);
        let mut parcels: Vec<Queue> = self.lanes.iter().map(|_| Queue::new()).collect();
        let mut answers = Vec::with_capacity(commands.len());
        for command in commands {
            let lane = self.lane_of(command.target());
            answers.push(self.ticket(command).map(|(ticket, answer)| {
                parcels[lane].push(ticket);
                answer
            }));
        }
        for (lane, parcel) in parcels.into_iter().enumerate() {
            if !parcel.is_empty() {
                // A lane that ended drops its tickets, which tells their callers.
                let _ = self.lanes[lane].send(parcel);
            }
        }
        let mut replies = Vec::with_capacity(answers.len());
        for answer in answers {
            replies.push(match answer {
                Ok(answer) => answer.await.unwrap_or_else(|_| Err(gone())),
                Err(overloaded) => Err(overloaded),
            });
        }
        replies
    }

    fn lane_of(&self, target: RunTarget) -> usize {
        let lane = BuildHasherDefault::<DefaultHasher>::default().hash_one(target);
        usize::try_from(lane % self.lanes.len() as u64).unwrap_or(0)
    }

    /// Gives a command its place among what may wait.
    fn ticket<C: RunCommand>(&self, command: C) -> Result<Queued<C>, Error<C::Refusal>> {
        let place = self
            .places
            .clone()
            .try_acquire_owned()
            .map_err(|_| Error::Fault(store::Error::Overloaded))?;
        let (reply, answer) = oneshot::channel();
        let ticket = Box::new(Ticket {
            command,
            decided: None,
            begun: false,
            reply,
            _place: place,
        });
        Ok((ticket, answer))
    }
}

/// A command as it is queued, and where its answer will be.
type Queued<C> = (Box<dyn Waiting>, oneshot::Receiver<Reply<C>>);

fn gone<R>() -> Error<R> {
    Error::Fault(store::Error::Unavailable("the lane ended".into()))
}

async fn drive(executor: Executor, mut queue: mpsc::UnboundedReceiver<Queue>) {
    let mut left = None;
    loop {
        let mut commands = match left.take() {
            Some(parcel) => parcel,
            None => match queue.recv().await {
                Some(parcel) => parcel,
                None => return,
            },
        };
        while commands.len() < BATCH {
            match queue.try_recv() {
                Ok(more) if commands.len() + more.len() <= BATCH => commands.extend(more),
                Ok(more) => {
                    left = Some(more);
                    break;
                }
                Err(_) => break,
            }
        }
        commands.retain(|command| !command.is_gone());
        let executor = executor.clone();
        // A batch of its own task: a panic inside it drops its commands' senders, not the lane.
        if let Err(panic) = tokio::spawn(async move { executor.batch(commands).await }).await {
            tracing::error!(%panic, "a batch of commands panicked");
        }
    }
}

impl Executor {
    /// One shared transaction; what it leaves out goes to the waiters.
    async fn batch(&self, commands: Queue) {
        let mut commands = self.give_to_waiters(commands);
        if commands.is_empty() {
            return;
        }
        match self.attempt(&mut commands, Held::Skip).await {
            Ok(left_out) => {
                let held = self.answer_absent(left_out).await;
                self.wait_for(held);
            }
            Err((remedy, fault)) if commands.len() == 1 && remedy != Remedy::RunAgain => {
                fail_all(commands, fault);
            }
            Err((Remedy::RetryLater, fault)) => fail_all(commands, fault),
            // A fault of the shared transaction: run by run, outside the lane, so that one command's
            // fault is its own and no held run is waited for in here.
            Err(_) => self.wait_for(commands),
        }
    }

    /// Answers the commands of runs that do not exist; gives those of runs that somebody holds.
    async fn answer_absent(&self, left_out: Queue) -> Queue {
        if left_out.is_empty() {
            return left_out;
        }
        let targets: Vec<RunTarget> = left_out.iter().map(|c| c.target()).collect();
        let absent = match self.store.absent_runs(&targets).await {
            Ok(absent) => absent,
            Err(_) => return left_out, // their waiters will know
        };
        let mut held = Vec::new();
        for mut command in left_out {
            if absent.contains(&command.target()) {
                command.no_run();
                command.answer(None);
            } else {
                held.push(command);
            }
        }
        held
    }

    /// Commands of runs that have a waiter join its queue.
    fn give_to_waiters(&self, commands: Queue) -> Queue {
        let mut waiters = self
            .waiters
            .lock()
            .expect("no one panics while holding the waiters");
        if waiters.is_empty() {
            return commands;
        }
        let mut rest = Vec::with_capacity(commands.len());
        for command in commands {
            match waiters.get_mut(&command.target()) {
                Some(queue) => join(queue, command),
                None => rest.push(command),
            }
        }
        rest
    }

    /// Starts a waiter for each run that is held, or gives its commands to the one it has.
    fn wait_for(&self, left_out: Queue) {
        for command in left_out {
            let target = command.target();
            let mut waiters = self
                .waiters
                .lock()
                .expect("no one panics while holding the waiters");
            if let Some(queue) = waiters.get_mut(&target) {
                join(queue, command);
                continue;
            }
            waiters.insert(target, vec![command]);
            let executor = self.clone();
            tokio::spawn(async move { executor.waiter(target).await });
        }
    }

    /// Does one run's commands, group by group, waiting for its lock, until none is left.
    async fn waiter(&self, target: RunTarget) {
        loop {
            let mut group: Queue = {
                let mut waiters = self
                    .waiters
                    .lock()
                    .expect("no one panics while holding the waiters");
                match waiters.get_mut(&target) {
                    Some(queue) if !queue.is_empty() => {
                        let n = queue.len().min(BATCH);
                        queue.drain(..n).collect()
                    }
                    _ => {
                        waiters.remove(&target);
                        return;
                    }
                }
            };
            // Waiting for a lock takes a connection: only so many may, or a stalled replica elsewhere
            // would take all of this one's.
            let _turn = self.waiting.acquire().await;
            group.retain(|command| !command.is_gone());
            if !group.is_empty() {
                self.alone(group).await;
            }
        }
    }

    /// Commands of one run in a transaction that waits for its lock; run again if it gave way.
    async fn alone(&self, mut commands: Queue) {
        for attempt in 0.. {
            match self.attempt(&mut commands, Held::Wait).await {
                Ok(left_out) => {
                    debug_assert!(left_out.is_empty());
                    return;
                }
                Err((Remedy::RunAgain, _)) if attempt < RETRIES => {}
                Err((Remedy::None, _)) if commands.len() > 1 => {
                    // One of them cannot be done: find it.
                    for command in commands {
                        Box::pin(self.alone(vec![command])).await;
                    }
                    return;
                }
                Err((_, fault)) => return fail_all(commands, fault),
            }
        }
    }

    /// One transaction. On success every command but those of held runs is answered; on a fault
    /// none is, and all are still in `commands`.
    async fn attempt(
        &self,
        commands: &mut Queue,
        held: Held,
    ) -> Result<Queue, (Remedy, store::Error)> {
        for command in commands.iter_mut() {
            command.undecide();
        }
        // A panic is the fault of one command: the others must not lose their answers to it.
        let outcome = AssertUnwindSafe(self.transact(commands, held))
            .catch_unwind()
            .await;
        let outcome = outcome.unwrap_or_else(|panic| {
            tracing::error!(panic = panic_message(&*panic), "a command panicked");
            Err(store::Error::inconsistent(
                "commands",
                "decision",
                "a command that panicked",
            ))
        });
        let (views, hints) = outcome.map_err(|fault| (fault.remedy(), fault))?;
        let mut views = views.into_iter();
        let mut left_out = Vec::new();
        for command in std::mem::take(commands) {
            if command.is_undecided() {
                left_out.push(command);
            } else {
                let task = command.shows().and_then(|_| views.next());
                command.answer(task);
            }
        }
        self.bus.announce(hints).await;
        Ok(left_out)
    }

    async fn transact(
        &self,
        commands: &mut Queue,
        held: Held,
    ) -> Result<(Vec<TaskView>, Vec<Hint>), store::Error> {
        let mut tx = self.store.lock_runs(&wanted(commands), held).await?;
        let mut turns: BTreeMap<RunTarget, Turn> = BTreeMap::new();
        for (at, command) in commands.iter_mut().enumerate() {
            let target = command.target();
            if tx.locked(&target).is_some() {
                turns.entry(target).or_default().next.push_back(at);
            } else if held == Held::Wait {
                command.no_run();
            } // else held by somebody, or absent
        }
        to_rest(&mut tx, commands, turns).await?;
        let views: Vec<(RunTarget, TaskNo)> = commands
            .iter()
            .filter_map(|c| Some((c.target(), c.shows()?)))
            .collect();
        let hints = tx.hints();
        let views = tx.commit(&views).await?;
        Ok((views, hints))
    }
}

/// Queues a command behind others of its run, if there is room.
fn join(queue: &mut Queue, command: Box<dyn Waiting>) {
    if queue.len() < QUEUED_OF_RUN {
        queue.push(command);
    } else {
        command.fail(store::Error::Overloaded);
    }
}

/// Where one run of a batch stands.
#[derive(Default)]
struct Turn {
    /// Its commands that are not decided yet, in order of arrival.
    next: VecDeque<usize>,
    /// Whether one was decided whose consequences are not all carried out.
    under_way: bool,
    /// What was loaded last for it.
    asked: Option<Want>,
}

/// Decides the commands of all runs, each carried to rest before the next of its run. What their
/// consequences must see is loaded in rounds, one round trip for all runs.
async fn to_rest(
    tx: &mut RunTx,
    commands: &mut Queue,
    mut turns: BTreeMap<RunTarget, Turn>,
) -> Result<(), store::Error> {
    let mut mint = Mint::new();
    while !turns.is_empty() {
        let mut wants = Vec::new();
        for (target, turn) in &mut turns {
            let locked = tx.locked(target).expect("a run that has a turn is locked");
            if let Some(want) = turn.go_on(locked, commands, &mut mint)? {
                wants.push((*target, want));
            }
        }
        turns.retain(|_, turn| turn.under_way);
        if !wants.is_empty() {
            tx.load(&wants).await?;
        }
    }
    Ok(())
}

impl Turn {
    /// Goes on until something must be loaded, or nothing is left to do.
    fn go_on(
        &mut self,
        locked: &mut Locked,
        commands: &mut Queue,
        mint: &mut Mint,
    ) -> Result<Option<Want>, store::Error> {
        loop {
            if self.under_way
                && let Some(want) = locked.graph.advance()
            {
                if self.asked.as_ref() == Some(&want) {
                    // What was just read for is not there: the rows contradict each other.
                    return Err(store::Error::inconsistent(
                        "runs",
                        "graph",
                        format!("{want:?} has no rows"),
                    ));
                }
                self.asked = Some(want.clone());
                return Ok(Some(want));
            }
            self.asked = None;
            let next = self.next.pop_front();
            self.under_way = next.is_some();
            match next {
                Some(at) => commands[at].decide(locked, mint),
                None => return Ok(None),
            }
        }
    }
}

/// What a batch must see at first: one entry a run, in lock order.
fn wanted(commands: &Queue) -> Vec<(RunTarget, Vec<First>)> {
    let mut wanted: BTreeMap<RunTarget, Vec<First>> = Default::default();
    for command in commands {
        wanted
            .entry(command.target())
            .or_default()
            .push(command.first());
    }
    wanted.into_iter().collect()
}

fn fail_all(commands: Queue, fault: store::Error) {
    let mut fault = Some(fault);
    for command in commands {
        let fault = fault
            .take()
            .unwrap_or_else(|| store::Error::Unavailable("the shared transaction failed".into()));
        command.fail(fault);
    }
}
