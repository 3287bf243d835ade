"use strict";
// One stream of events for all tabs of a browser: connections to a server are few, and a stream would take one each.
// Runs as a SharedWorker; a tab says which namespace it looks at and since when, and is told what kinds of things changed.

const streams = new Map();

onconnect = (connection) => {
  const port = connection.ports[0];
  port.onmessage = ({ data }) => {
    if (data.leave) { leave(port); } else { join(port, data.ns, data.since); }
  };
};

function join(port, ns, since) {
  leave(port);
  let stream = streams.get(ns);
  if (!stream || stream.source.readyState === EventSource.CLOSED) {
    stream = open(ns, since, stream);
  } else {
    port.postMessage({ state: stream.state });
    // What happened between the making of the page and now was told to others only.
    if (stream.lastAt >= since) { port.postMessage({ kinds: [...stream.kinds] }); }
  }
  stream.ports.add(port);
}

function open(ns, since, before) {
  const address = "/v1/events?ns=" + encodeURIComponent(ns) + "&since=" + encodeURIComponent(since);
  const stream = { source: new EventSource(address), ports: before?.ports ?? new Set(), state: "away", lastAt: "", kinds: new Set() };
  const tell = (message) => { for (const port of stream.ports) { port.postMessage(message); } };
  const say = (state) => { stream.state = state; tell({ state }); };
  stream.source.onopen = () => say("live");
  stream.source.onerror = () => {
    say("away");
    // An answer that is no stream (the session ended) closes it for good: somebody has to try again.
    if (stream.source.readyState === EventSource.CLOSED) { setTimeout(() => reopen(ns, stream), 5000); }
  };
  for (const kind of ["flow", "escalation", "resolution"]) {
    stream.source.addEventListener(kind, (event) => {
      stream.lastAt = JSON.parse(event.data).at;
      stream.kinds.add(kind);
      tell({ kinds: [kind] });
    });
  }
  streams.set(ns, stream);
  return stream;
}

function reopen(ns, stream) {
  if (stream.ports.size > 0 && streams.get(ns) === stream) { open(ns, stream.lastAt || new Date().toISOString(), stream); }
}

function leave(port) {
  for (const [ns, stream] of streams) {
    stream.ports.delete(port);
    if (stream.ports.size === 0) {
      stream.source.close();
      streams.delete(ns);
    }
  }
}
