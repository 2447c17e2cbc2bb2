//! Pausing and resuming (`runs.md` §7, `engine.md` §10): nothing new starts, the clocks stand, and
//! no time is lost by it.

use super::graph::Graph;
use crate::domain::refusal;
use crate::domain::words::RunStatus;

/// Decides a pause. What is in flight settles and may even expand; what becomes ready waits.
///
/// # Errors
/// `not_pausable`: only a running run is paused; a forced pause of a paused one changes nothing.
pub fn pause(graph: &mut Graph, force: bool) -> Result<(), refusal::Pause> {
    match graph.run.status {
        RunStatus::Running => {
            graph.stop_clocks();
            graph.set_run_status(RunStatus::Paused);
            Ok(())
        }
        RunStatus::Paused if force => Ok(()),
        _ => Err(refusal::Pause::NotPausable),
    }
}

/// Decides a resume: every open deadline moves forward by exactly the pause.
///
/// # Errors
/// `not_resumable`.
pub fn resume(graph: &mut Graph) -> Result<(), refusal::Resume> {
    if graph.run.status != RunStatus::Paused {
        return Err(refusal::Resume::NotResumable);
    }
    graph.start_clocks();
    graph.set_run_status(RunStatus::Running);
    Ok(())
}
