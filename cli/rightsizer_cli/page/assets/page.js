// Asks again while one types; without this script the button asks.
"use strict";

const form = document.getElementById("question");
const answer = document.getElementById("answer");
const said = document.getElementById("said");
const wait = document.getElementById("wait");
const GONE = "The page's server does not answer: start `rightsizer serve` again.";
let waiting, running, clock;

function question() {
  const given = [...new FormData(form)].filter(([, text]) => text.trim() !== "");
  return "?" + new URLSearchParams(given);
}

function computing() {
  const start = Date.now();
  clearInterval(clock);
  clock = setInterval(() => {
    const seconds = Math.round((Date.now() - start) / 1000);
    const why = seconds < 5 ? "" : " A large model on several GPU types takes minutes.";
    if (!wait.textContent) said.textContent = "Computing the plan";
    wait.textContent = `Computing the plan: ${seconds} s.${why}`;
  }, 1000);
  answer.setAttribute("aria-busy", "true");
}

function shown() {
  clearInterval(clock);
  wait.textContent = "";
  answer.removeAttribute("aria-busy");
  const verdict = answer.querySelector(".verdict")?.textContent ?? answer.textContent;
  said.textContent = verdict;
  document.title = `${verdict.split(", ")[0].slice(0, 70)} - rightsizer`;
}

async function ask(remember) {
  running?.abort();
  const mine = (running = new AbortController());
  const address = question();
  computing();
  try {
    const response = await fetch("answer" + address, { signal: mine.signal });
    const text = await response.text();
    if (mine.signal.aborted) return;
    if (response.ok) answer.innerHTML = text;
    else answer.textContent = `The page's server refuses this question (${response.status}).`;
    if (address !== location.search) remember(null, "", address);
  } catch (error) {
    if (error.name === "AbortError") return;
    answer.textContent = GONE;
  }
  shown();
}

const replaced = history.replaceState.bind(history);
const pushed = history.pushState.bind(history);

form.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(ask, 500, replaced);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(waiting);
  ask(pushed);
});
addEventListener("popstate", () => location.reload());
answer.addEventListener("click", async (event) => {
  const source = event.target.dataset.copies;
  if (!source) return;
  try {
    await navigator.clipboard.writeText(document.getElementById(source).textContent);
    said.textContent = event.target.textContent = "Copied";
  } catch {
    said.textContent = event.target.textContent = "Not allowed to copy: select the text";
  }
});
if (answer.querySelector("[data-pending]")) ask(replaced);
