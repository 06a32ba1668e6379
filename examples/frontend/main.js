// A chat with an agent over AG-UI, by the npm client. What the agent sends reaches the page as
// text alone (textContent), never as HTML.

import { HttpAgent, buildResumeArray, randomUUID } from "@ag-ui/client";

const byId = (id) => document.getElementById(id);
const make = (tag, properties, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

// The conversation lives in the page, which sends all of it with each run. It is kept after each
// run, so that a reload finds it again, with the questions that are still open.

const kept = JSON.parse(sessionStorage.getItem("conversation")) ?? {};
const agent = new HttpAgent({
  url: document.querySelector("meta[name=agent]").content,
  threadId: kept.threadId,
  initialMessages: kept.messages,
  initialState: kept.state,
});
agent.pendingInterrupts = kept.pendingInterrupts ?? [];
paint(kept.colour ?? "");

function keep() {
  const { threadId, messages, state, pendingInterrupts } = agent;
  const colour = document.documentElement.style.getPropertyValue("--accent");
  const all = { threadId, messages, state, pendingInterrupts, colour };
  sessionStorage.setItem("conversation", JSON.stringify(all));
}

// Tools: what the agent may ask the page to do. Each takes what the agent sends, so it checks it.

const tools = {
  set_colour: {
    description: "Paints the page.",
    parameters: {
      type: "object",
      properties: { colour: { type: "string", description: "A colour, as CSS has them" } },
      required: ["colour"],
    },
    execute({ colour }) {
      if (!CSS.supports("color", colour)) throw new Error(`${colour} is not a colour.`);
      paint(colour);
      return `I am ${colour} now.`;
    },
  },
};
const offered = Object.entries(tools).map(([name, { description, parameters }]) => {
  return { name, description, parameters };
});

function paint(colour) {
  document.documentElement.style.setProperty("--accent", colour);
}

// The message that answers a call, in a list; none where it is not the page's to answer.
async function carryOut(callId) {
  const calls = agent.messages.flatMap((message) => message.toolCalls ?? []);
  const { name, arguments: text } = calls.find(({ id }) => id === callId)?.function ?? {};
  if (!Object.hasOwn(tools, name)) return [];
  const answer = { id: randomUUID(), role: "tool", toolCallId: callId };
  try {
    return [{ ...answer, content: await tools[name].execute(JSON.parse(text)) }];
  } catch (error) {
    return [{ ...answer, content: "", error: error.message }];
  }
}

// A run, and the runs that follow it while the agent waits for what its calls came to. A run that
// the agent ends with an error is no exception here: the client hands over the event. It does so
// as well for a run that the person has stopped, which is no failure.

let stopped = false;

async function run(resume) {
  setRunning(true);
  stopped = false;
  showError("");
  keep();
  try {
    let results;
    do {
      let pending = [];
      await agent.runAgent(
        { tools: offered, resume },
        {
          onRunFinishedEvent: ({ pendingToolCallIds = [] }) => void (pending = pendingToolCallIds),
          onRunErrorEvent: ({ event }) => stopped || showError(event.message),
        },
      );
      results = (await Promise.all(pending.map(carryOut))).flat();
      agent.addMessages(results);
      resume = undefined;
    } while (results.length > 0 && !stopped);
  } catch (error) {
    if (!stopped) showError(`The run failed: ${error.message}`);
  }
  setRunning(false);
  keep();
}

function say(content) {
  agent.addMessage({ id: randomUUID(), role: "user", content });
  void run();
}

// What is seen: messages and state as they change, the rest when a run begins or ends.

agent.subscribe({ onMessagesChanged: showMessages, onStateChanged: showState });

const lines = new Map(); // the element of each line in the log, by the id of what it shows

function showMessages() {
  const log = byId("log");
  const all = agent.messages.flatMap(linesOf).map(({ id, kind, text }) => {
    if (!lines.has(id)) lines.set(id, make("p", { className: kind }));
    const line = lines.get(id);
    if (line.textContent !== text) line.textContent = text;
    return line;
  });
  all.forEach((line, place) => {
    if (log.children[place] !== line) log.insertBefore(line, log.children[place] ?? null);
  });
  while (log.children.length > all.length) log.lastChild.remove();
}

function linesOf({ id, role, content, error, toolCalls = [] }) {
  const text = Array.isArray(content) ? content.map((part) => part.text ?? "").join("") : content;
  const calls = toolCalls.map(({ id, function: { name, arguments: args } }) => {
    return { id, kind: "tool", text: `${name} ${args}` };
  });
  return text || error ? [{ id, kind: role, text: error ?? text }, ...calls] : calls;
}

function showState() {
  const { stops = [], booked = false } = agent.state ?? {};
  const list = byId("stops");
  while (list.children.length > stops.length) list.lastChild.remove();
  stops.forEach((stop, place) => {
    if (place === list.children.length) {
      const box = make("input", { type: "checkbox", onchange: () => tick(place, box.checked) });
      list.append(make("li", {}, make("label", {}, box, make("span"))));
    }
    const [box, name] = list.children[place].firstChild.children;
    box.checked = stop.go;
    box.disabled = booked || running;
    name.textContent = stop.name;
  });
  byId("status").textContent = booked ? "Booked" : stops.length > 0 ? "Not booked" : "No plan yet";
}

// What the person changes in the state goes to the agent with the next run.
function tick(place, go) {
  const stops = agent.state.stops.map((stop, at) => (at === place ? { ...stop, go } : stop));
  agent.setState({ ...agent.state, stops });
  keep();
}

// The questions that the last run has ended with; the next run brings the answers to all of them.

const answers = new Map();

function showQuestions() {
  const open = agent.pendingInterrupts.filter(({ id }) => !answers.has(id));
  const button = (textContent, id, payload) =>
    make("button", { type: "button", textContent, onclick: () => answer(id, payload) });
  const questions = open.map(({ id, message, reason }) => {
    const words = make("p", { textContent: message ?? reason });
    return make("div", {}, words, button("Yes", id, true), button("No", id, false));
  });
  byId("questions").replaceChildren(...(running ? [] : questions));
}

function answer(id, payload) {
  answers.set(id, { status: "resolved", payload });
  if (agent.pendingInterrupts.some(({ id }) => !answers.has(id))) return showQuestions();
  const resume = buildResumeArray(agent.pendingInterrupts, Object.fromEntries(answers));
  answers.clear();
  void run(resume);
}

function showError(text) {
  byId("error").textContent = text;
  byId("error").hidden = !text;
}

let running = false;

function setRunning(now) {
  running = now;
  byId("stop").hidden = !running;
  byId("new").disabled = running;
  byId("inputs").disabled = running || agent.pendingInterrupts.length > 0;
  showState();
  showQuestions();
  if (!byId("inputs").disabled) byId("text").focus();
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("text").value.trim();
  byId("composer").reset();
  if (text) say(text);
});
byId("examples").addEventListener("click", ({ target }) => {
  if (target.matches("button")) say(target.textContent);
});
byId("stop").addEventListener("click", () => {
  stopped = true;
  agent.abortRun();
});
byId("new").addEventListener("click", () => {
  sessionStorage.clear();
  location.reload();
});
showMessages();
setRunning(false);
