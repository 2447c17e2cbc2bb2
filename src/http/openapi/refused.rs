//! Which statuses and codes a command may refuse with: every variant of its refusals, asked for its
//! status where the answers are made (`http::refusals`).
//!
//! Invariant: an enum whose variants carry data is spelled out by a macro that matches it
//! exhaustively, so a variant that is left out does not compile.

use crate::commands::{append, create, upload};
use crate::domain::announcement::Refused as Announce;
use crate::domain::json::Unstorable;
use crate::domain::refusal::{self, Provision};
use crate::domain::steps::{StepCode, StepError};
use crate::domain::{TaskKey, operation, payload, progress, steps};
use crate::http::ApiError;
use crate::http::refusals::Refused;

/// A status and the code that comes with it.
pub type Code = (u16, &'static str);

/// Refusals that can be told one by one.
pub trait Every {
    /// All of them, as they are answered.
    fn every() -> Vec<Code>;
}

fn code(answer: &ApiError) -> Code {
    (answer.status.as_u16(), answer.code)
}

fn codes<R: Refused>(refusals: impl IntoIterator<Item = R>) -> Vec<Code> {
    refusals.into_iter().map(|r| code(&r.answer())).collect()
}

macro_rules! listed {
    ($($name:ident),*) => {$(
        impl Every for refusal::$name {
            fn every() -> Vec<Code> {
                codes(Self::ALL.iter().copied())
            }
        }
    )*};
}

listed!(
    Claim,
    ReadClaim,
    Start,
    Stop,
    Delete,
    CommitClaim,
    Pause,
    Resume,
    Abandon,
    Approval,
    Cancel,
    AnswerAsk,
    DefaultRunner,
    Retry,
    Trace,
    Accept,
    Observe
);

/// One value of each variant; what `match` does not find named here does not compile.
macro_rules! every {
    ($name:ident { $($variant:ident $value:tt),* $(,)? }) => {{
        fn _exhaustive(refusal: &$name) {
            match refusal {
                $($name::$variant { .. } => (),)*
            }
        }
        vec![$(every!(@ $name $variant $value)),*]
    }};
    (@ $name:ident $variant:ident ()) => { $name::$variant };
    (@ $name:ident $variant:ident { $($fields:tt)* }) => { $name::$variant { $($fields)* } };
    (@ $name:ident $variant:ident ($($fields:tt)+)) => { $name::$variant($($fields)+) };
}

impl Every for refusal::Extend {
    fn every() -> Vec<Code> {
        use refusal::Extend;
        codes(every!(Extend {
            NotFound (),
            NotExtendable (),
            NotClaimant (),
            ExtensionTooLong { bound_ms: 0 },
        }))
    }
}

impl Every for operation::Malformed {
    fn every() -> Vec<Code> {
        codes(Self::ALL.iter().copied())
    }
}

impl Every for payload::Refusal {
    fn every() -> Vec<Code> {
        use payload::Refusal;
        codes(every!(Refusal {
            InvalidOutcome (),
            UnsupportedContentKind { at: 0 },
            InvalidContent { spot: String::new() },
            TooManyContentBlocks (),
            UnknownResultUpload { at: 0 },
            InvalidMetadata (String::new()),
            MetadataTooLarge (),
            InvalidTitle (),
            InvalidResultType (),
            ResultTooLarge (),
            ResultUnstorable (Unstorable::Nul),
        }))
    }
}

impl Every for refusal::Commit {
    fn every() -> Vec<Code> {
        let payload = payload::Refusal::every();
        [refusal::CommitClaim::every(), payload].concat()
    }
}

impl Every for refusal::Answer {
    fn every() -> Vec<Code> {
        let payload = payload::Refusal::every();
        [refusal::AnswerAsk::every(), payload].concat()
    }
}

impl Every for progress::Refusal {
    fn every() -> Vec<Code> {
        use progress::Refusal;
        codes(every!(Refusal {
            InvalidFrame (String::new()),
            FrameTooLarge (),
        }))
    }
}

impl Every for upload::Refusal {
    fn every() -> Vec<Code> {
        use upload::Refusal;
        codes(every!(Refusal {
            TooLarge (),
            Broken (String::new()),
        }))
    }
}

impl Every for Announce {
    fn every() -> Vec<Code> {
        let all = every!(Announce {
            ToolsMissing (),
            Unstorable { part: "", why: Unstorable::Nul },
            Invalid (String::new()),
            Reserved (String::new()),
            TooLarge { part: "" },
        });
        all.into_iter().map(|r| code(&r.into())).collect()
    }
}

impl Every for Provision {
    fn every() -> Vec<Code> {
        Self::ALL.iter().map(|r| code(&(*r).into())).collect()
    }
}

fn a_key() -> TaskKey {
    TaskKey::trusted("a".to_owned())
}

fn all_of_steps() -> Vec<steps::Refusal> {
    use steps::Refusal;
    let error = StepError {
        code: StepCode::ALL[0],
        path: None,
    };
    every!(Refusal {
        StepsRequired (),
        GraphAuthoringNotAvailable (),
        InvalidSteps (vec![error]),
        DuplicateTaskKey (a_key()),
    })
}

/// The codes of members of `run` (`commands::create`).
const RUN_MEMBERS: [&str; 8] = [
    "invalid_approval_mode",
    "invalid_approval_rules",
    "invalid_prompt_mechanism",
    "billing_subject_not_owned",
    "runner_not_eligible",
    "invalid_model_selection",
    "invalid_fallback_models",
    "unknown_run_option",
];
/// The code of graph words, beside steps and within `run`.
const GRAPH_WORDS: &str = "edge_authoring_refused";

impl Every for create::Refusal {
    fn every() -> Vec<Code> {
        use create::Refusal;
        let member = |code| Refusal::Member {
            code,
            path: None,
            message: String::new(),
        };
        let all = every!(Refusal {
            RunMissing (),
            RunInvalid (),
            InProgress (),
            EnvelopeMismatch (),
            Member { code: GRAPH_WORDS, path: None, message: String::new() },
            Steps (steps::Refusal::StepsRequired),
            Wait (steps::WaitRefusal::TargetNotFound),
        });
        let steps = all_of_steps().into_iter().map(Refusal::Steps);
        let members = RUN_MEMBERS.into_iter().map(member);
        let cycle = [Refusal::Wait(steps::WaitRefusal::Cycle)];
        codes(all.into_iter().chain(steps).chain(members).chain(cycle))
    }
}

impl Every for append::Refusal {
    fn every() -> Vec<Code> {
        use append::{Judged, Refusal};
        let all = every!(Refusal {
            InProgress (),
            EnvelopeMismatch (),
            Malformed { parameter: "", message: "" },
            Member { code: GRAPH_WORDS, path: None, message: String::new() },
            Judged (Judged::NotFound),
        });
        let judged = every!(Judged {
            NotFound (),
            RunNotAppendable (),
            StaleRevision { current: 1 },
            Steps (steps::Refusal::StepsRequired),
            TipUnresolved (),
            TipLive (),
            WaitTargetNotFound (),
            WaitCycle (),
            UnknownAwait (String::new()),
            AwaitNotResolvable (String::new()),
            UnsupportedResolveOutcome (),
            Payload (payload::Refusal::InvalidOutcome),
        });
        let steps = all_of_steps().into_iter().map(Judged::Steps);
        let judged = judged.into_iter().chain(steps).map(Refusal::Judged);
        let own = codes(all.into_iter().chain(judged));
        [own, payload::Refusal::every()].concat()
    }
}
