// Two things that the pages do without as well: they follow a job's events, and check a form while one types.
"use strict";

const number = (value) => Number(value).toLocaleString("en");

const duration = (seconds) => {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole}\u2009s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}\u2009min ${whole % 60}\u2009s`;
  return `${Math.floor(minutes / 60)}\u2009h ${minutes % 60}\u2009min`;
};

const follow = (section) => {
  const part = (id) => document.getElementById(id);
  const source = new EventSource(section.dataset.events);
  let stage = "", state = part("state").textContent;
  source.addEventListener("progress", (event) => {
    const now = JSON.parse(event.data), bar = part("progress");
    if (now.stage && now.stage !== stage) part("told").textContent = stage = now.stage;
    if (now.stage) part("stage").textContent = now.stage;
    if (now.total) {
      bar.max = now.total;
      bar.value = now.done ?? 0;
    } else {
      bar.removeAttribute("value");
    }
    part("counts").textContent = now.done == null ? "" : number(now.done) + (now.total ? ` of ${number(now.total)}` : "");
    part("left").textContent = now.seconds_left == null ? "" : ` · about ${duration(now.seconds_left)} left`;
  });
  source.addEventListener("state", (event) => {
    const now = JSON.parse(event.data);
    if (["finished", "failed", "cancelled"].includes(now.state)) {
      source.close();
      location.reload();
      return;
    }
    state = now.state === "running" ? "runs" : "waits";
    part("state").textContent = state;
    part("state").className = `state ${now.state}`;
  });
};

const check = (form) => {
  const line = document.getElementById("check");
  let timer = 0, asked = 0;
  const show = (answer) => {
    line.textContent = answer.message;
    line.className = `verdict-line ${answer.valid ? "good" : "bad"}`;
    const wrong = new Map(answer.fields.map((name, i) => [name, answer.messages[i]]));
    for (const error of form.querySelectorAll(".error")) {
      const input = document.getElementById(error.id.replace(/-error$/, ""));
      const message = wrong.get(input.name);
      error.hidden = message === undefined;
      error.textContent = message ?? "";
      if (message === undefined) input.removeAttribute("aria-invalid");
      else input.setAttribute("aria-invalid", "true");
    }
  };
  const ask = async () => {
    const mine = ++asked;
    try {
      const answer = await fetch(form.dataset.check, { method: "POST", body: new FormData(form), credentials: "same-origin" });
      if (mine === asked && answer.ok && !answer.redirected) show(await answer.json());
    } catch {
      line.textContent = "The endpoint does not answer; what you typed is checked when you submit.";
      line.className = "verdict-line bad";
    }
  };
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, 600);
  });
};

document.querySelectorAll("[data-events]").forEach(follow);
document.querySelectorAll("[data-check]").forEach(check);
document.querySelector("main [role=alert][tabindex]")?.focus();
