"use strict";
// What single pages add for whoever has JavaScript; every page works without it.

// --- the proof of an entry, checked here with the browser's own cryptography, from what the page carries ---

const hex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const base64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const equal = (one, other) => one.length === other.length && one.every((byte, at) => byte === other[at]);

async function hash(...parts) {
  const whole = new Uint8Array(await new Blob(parts).arrayBuffer());
  return new Uint8Array(await crypto.subtle.digest("SHA-256", whole));
}

// RFC 9162, 2.1.3.2: from a leaf, its place, and the hashes beside its way up, to the root.
async function rootOf(leaf, index, size, path) {
  let place = index;
  let last = size - 1;
  let node = leaf;
  for (const sibling of path) {
    if (last === 0) { return null; }
    if (place % 2 === 1 || place === last) {
      node = await hash(Uint8Array.of(1), sibling, node);
      while (place % 2 === 0 && place !== 0) { place = Math.floor(place / 2); last = Math.floor(last / 2); }
    } else {
      node = await hash(Uint8Array.of(1), node, sibling);
    }
    place = Math.floor(place / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 ? node : null;
}

// A signed note: a text, an empty line, and lines of `— name base64(key id, signature)`.
async function signedBy(note, keys) {
  const end = note.indexOf("\n\n");
  const text = new TextEncoder().encode(note.slice(0, end + 1));
  for (const line of note.slice(end + 2).split("\n")) {
    const [, name, value] = line.match(/^— (\S+) (\S+)$/) ?? [];
    if (value === undefined) { continue; }
    const bytes = base64(value);
    for (const each of keys) {
      const [keyName, id, key] = each.match(/^(.+)\+([0-9a-f]{8})\+(\S+)$/).slice(1);
      const raw = base64(key);
      if (keyName !== name || !equal(hex(id), bytes.slice(0, 4)) || raw[0] !== 1) { continue; }
      const verifier = await crypto.subtle.importKey("raw", raw.slice(1), "Ed25519", false, ["verify"]);
      if (await crypto.subtle.verify("Ed25519", verifier, bytes.slice(4), text)) { return true; }
    }
  }
  return false;
}

async function checkProof(chain) {
  const { entry, index, size, path, note, keys } = chain.dataset;
  const [, noteSize, noteRoot] = note.split("\n");
  const leaf = await hash(Uint8Array.of(0), base64(entry));
  const shown = chain.querySelector(".hash").textContent;
  const root = await rootOf(leaf, Number(index), Number(size), path ? path.split(" ").map(hex) : []);
  return {
    entry: equal(leaf, hex(shown)),
    path: root !== null && noteSize === size && equal(root, base64(noteRoot)),
    head: await signedBy(note, keys.split(" ")),
  };
}

async function showProof(chain) {
  const outcome = document.getElementById("outcome");
  let results = {};
  try {
    results = await checkProof(chain);
  } catch (error) {
    // Without a secure context or Ed25519 the browser cannot check; what the server found stays.
    outcome.textContent = "This browser cannot check it here (" + error.name + "); what stands below is what the server found.";
    outcome.hidden = false;
    return;
  }
  for (const [name, holds] of Object.entries(results)) {
    const box = chain.querySelector(`[data-check="${name}"]`);
    box.innerHTML = "";
    const badge = document.createElement("span");
    badge.className = "badge " + (holds ? "good" : "bad");
    badge.textContent = holds ? "✓ checked in this page" : "✗ does not hold";
    box.append(badge);
  }
  const all = Object.values(results).every(Boolean);
  outcome.className = "note " + (all ? "done" : "bad");
  outcome.textContent = all
    ? "Checked in this page: the entry is in the log, under a head that the log's key signed."
    : "It does not hold: this entry is not under the signed head. Run holdproof verify.";
  outcome.hidden = false;
}

const chain = document.getElementById("proof");
if (chain !== null) { showProof(chain); }

// --- a file that is dropped on its form is sent to be checked ---

for (const form of document.querySelectorAll("form[data-drop]")) {
  const area = form.closest("section");
  const mark = (over) => area.toggleAttribute("data-over", over);
  area.addEventListener("dragover", (event) => { event.preventDefault(); mark(true); });
  area.addEventListener("dragleave", (event) => { if (!area.contains(event.relatedTarget)) { mark(false); } });
  area.addEventListener("drop", (event) => {
    event.preventDefault();
    mark(false);
    if (event.dataTransfer.files.length === 0) { return; }
    form.querySelector("input[type=file]").files = event.dataTransfer.files;
    form.requestSubmit();
  });
}
