// Asks again while one types; without this script the button asks.
"use strict";

const form = document.getElementById("question");
const answer = document.getElementById("answer");
let waiting, running;

function question() {
  const given = [...new FormData(form)].filter(([, text]) => text.trim() !== "");
  return "?" + new URLSearchParams(given);
}

async function ask() {
  running?.abort();
  running = new AbortController();
  const address = question();
  answer.setAttribute("aria-busy", "true");
  try {
    const response = await fetch("answer" + address, { signal: running.signal });
    answer.innerHTML = await response.text();
    history.replaceState(null, "", address);
    answer.removeAttribute("aria-busy");
  } catch (error) {
    if (error.name === "AbortError") return;
    answer.removeAttribute("aria-busy");
    answer.textContent = "The page's server does not answer: start `rightsizer serve` again.";
  }
}

form.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(ask, 500);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(waiting);
  ask();
});
answer.addEventListener("click", async (event) => {
  const source = event.target.dataset.copies;
  if (!source) return;
  await navigator.clipboard.writeText(document.getElementById(source).textContent);
  event.target.textContent = "Copied";
});
