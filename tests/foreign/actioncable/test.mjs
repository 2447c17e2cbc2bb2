// The stock ActionCable client against Nexus: what it sees, one JSON object a line, for the test
// that drives it (tests/it/foreign_clients/actioncable.rs).
//
//   node test.mjs <base url> <executor token>
//
// Lines out: {"saw":"connected"|"disconnected"|"rejected"|"received", ...}. Reads "quit" on stdin.
// It uses the library as a browser page would: nothing of the protocol is written here.

import readline from "node:readline";
import * as ActionCable from "@rails/actioncable";
import WebSocket from "ws";

const [base, token] = process.argv.slice(2);
if (!base || !token) {
  console.error("usage: node test.mjs <base url> <executor token>");
  process.exit(2);
}

// The library is written for pages: it listens for `visibilitychange`, and its WebSocket is the
// page's. Ours adds the one thing pages cannot: a header.
const noop = () => {};
globalThis.document ??= { visibilityState: "visible", addEventListener: noop, removeEventListener: noop };
globalThis.addEventListener ??= noop;
globalThis.removeEventListener ??= noop;

class Authorized extends WebSocket {
  constructor(url, protocols) {
    super(url, protocols, { headers: { authorization: `Bearer ${token}` } });
  }
}
ActionCable.adapters.WebSocket = Authorized;
ActionCable.adapters.logger = { log: (...what) => console.error(...what) };
ActionCable.logger.enabled = Boolean(process.env.ACTIONCABLE_LOG);

const saw = (what, more = {}) => console.log(JSON.stringify({ saw: what, ...more }));
const url = `${base.replace(/^http/, "ws")}/agent_api/v1/cable`;
const consumer = ActionCable.createConsumer(url);
consumer.subscriptions.create("AgentAPI::V1::ExecutorInboxChannel", {
  connected: (details) => saw("connected", details),
  disconnected: (details) => saw("disconnected", details),
  rejected: () => saw("rejected"),
  received: (data) => saw("received", { data }),
});

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  if (line === "quit") {
    consumer.disconnect();
    process.exit(0);
  }
});
