"use strict";
// Passkeys: the browser's part of a login and of a registration. Forms that need it are hidden where it cannot work.

async function optionsFrom(form) {
  const secret = form.elements.csrf?.value;
  const headers = secret ? { "X-CSRF-Token": secret } : {};
  const answer = await fetch(form.dataset.options, { method: "POST", headers, credentials: "same-origin" });
  if (!answer.ok) {
    const problem = await answer.json().catch(() => null);
    throw new Error(problem?.detail ?? "the server did not answer; try again");
  }
  return answer.json();
}

async function signed(form) {
  const options = await optionsFrom(form);
  if (form.dataset.passkey === "create") {
    return navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) });
  }
  return navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) });
}

function reasonOf(error) {
  // Browsers say the same where somebody cancelled, had no passkey or let the time pass.
  if (error.name === "NotAllowedError") { return "No passkey was used. Try again, or log in another way."; }
  if (error.name === "InvalidStateError") { return "This device has a passkey of yours already."; }
  return error.message;
}

// A host that is only a number has no passkeys, nor has a page without TLS.
const works = window.isSecureContext && !/^[\d.]+$|^\[/.test(location.hostname)
  && typeof PublicKeyCredential?.parseRequestOptionsFromJSON === "function";

for (const form of document.querySelectorAll("form[data-passkey]")) {
  form.hidden = !works;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const trouble = form.querySelector("[role=alert]");
    trouble.textContent = "";
    try {
      form.elements.passkey.value = JSON.stringify((await signed(form)).toJSON());
    } catch (error) {
      trouble.textContent = reasonOf(error);
      return;
    }
    form.submit();
  });
}
for (const each of document.querySelectorAll("[data-without-passkeys]")) { each.hidden = works; }
