//! Turns the cable's events into nudges. Frames are hints: none of them stops a handler by itself.

use std::sync::Arc;

use super::hub::Hub;
use crate::client::cable::{self, Event, frames};
use crate::domain::Value;

/// Listens until the cable ends for good or the runner drops it.
pub(super) async fn listen(hub: Arc<Hub>) {
    let identifiers = vec![frames::inbox_channel()];
    let mut cable = match cable::connect(&hub.client, identifiers, hub.timing.cable) {
        Ok(cable) => cable,
        Err(e) => {
            tracing::warn!("no cable, polling only: {e}");
            hub.look.notify_one();
            return;
        }
    };
    let mut first = true;
    while let Some(event) = cable.next().await {
        // Whether the first socket comes up or not, the first look waits no longer.
        if first && matches!(event, Event::Lost { .. }) {
            hub.look.notify_one();
        }
        first &= matches!(event, Event::Ping(_));
        on_event(&hub, event);
    }
}

fn on_event(hub: &Hub, event: Event) {
    match event {
        Event::Confirmed(_) => {
            tracing::debug!("inbox subscription confirmed");
            // Whatever was pushed before is lost: look again, at the inbox and at what is held.
            hub.check_all();
            hub.look.notify_one();
        }
        Event::Message { message, .. } => on_message(hub, &message),
        Event::Lost { reason, reconnect } => on_loss(hub, &reason, reconnect),
        Event::Rejected(_) => {
            tracing::warn!("inbox subscription rejected, polling only");
            hub.look.notify_one();
        }
        Event::Ping(_) => {}
    }
}

fn on_message(hub: &Hub, message: &Value) {
    let Some(event) = message.get("event") else {
        return;
    };
    let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "work_available" if text("kind") == "tool_call" => hub.work.notify_one(),
        "work_canceled" => hub.check(text("run_public_id"), text("task_key")),
        _ => {}
    }
}

fn on_loss(hub: &Hub, reason: &str, reconnect: bool) {
    if reconnect {
        tracing::info!(reason, "cable lost, reconnecting; polling goes on");
    } else if reason == "unauthorized" {
        hub.unauthorized();
    } else {
        tracing::warn!(reason, "cable ended, polling only");
        hub.look.notify_one();
    }
}
