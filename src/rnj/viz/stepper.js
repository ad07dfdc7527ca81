// One stepper on a page without a kernel: frames made beforehand, chosen by native controls.
// The form is anywidget's: render({model, el}). `el` is the element that Stepper.html() wrote; model.get reads its state:
//   controls: [{name, shown: [text of each value], index}], chunks: [pieces of SVG],
//   frames: [{picture: [chunk numbers], readout: HTML, numbers: {label: value}}], last control fastest.
function render({ model, el }) {
  const controls = model.get("controls"), chunks = model.get("chunks"), frames = model.get("frames");
  const picture = el.querySelector(".rnj-picture"), readout = el.querySelector(".rnj-readout");
  const at = controls.map((c) => c.index);
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  function show() {
    const frame = frames[controls.reduce((n, c, i) => n * c.shown.length + at[i], 0)];
    picture.innerHTML = frame.picture.map((n) => chunks[n]).join("");
    readout.innerHTML = frame.readout;
    el.dataset.numbers = JSON.stringify(frame.numbers);
    controls.forEach((c, i) => {
      for (const input of inputs[i]) {
        if (input.type === "radio") input.checked = +input.value === at[i];
        else input.value = at[i];
        if (input.type === "range") {
          input.setAttribute("aria-valuetext", c.shown[at[i]]);
          input.closest(".rnj-row").querySelector(".rnj-value").textContent = c.shown[at[i]];
        }
      }
    });
  }

  function set(i, index) {
    const n = controls[i].shown.length;
    const next = Math.min(Math.max(Math.round(index), 0), n - 1);
    if (!Number.isFinite(next) || next === at[i]) return;
    at[i] = next;
    show();
  }

  const inputs = controls.map((c) => [...el.querySelectorAll("[data-control]")].filter((e) => e.dataset.control === c.name));
  inputs.forEach((group, i) => group.forEach((input) => {
    const type = input.type === "range" ? "input" : "change";
    input.addEventListener(type, () => { stop(); set(i, +input.value); });
  }));

  // Play: one step every `data-ms`, back to the start when it was at the end; with reduced motion the button makes one step.
  let timer = null, playing = null;
  function stop() {
    if (timer === null) return;
    clearInterval(timer);
    timer = null;
    playing.textContent = playing.dataset.word;
    readout.setAttribute("aria-live", "polite");
  }
  for (const button of el.querySelectorAll(".rnj-play")) {
    const i = controls.findIndex((c) => c.name === button.dataset.play), last = controls[i].shown.length - 1;
    const word = () => {
      button.dataset.word = calm.matches ? "Next" : "Play";
      if (playing !== button || timer === null) button.textContent = button.dataset.word;
    };
    calm.addEventListener("change", () => { stop(); word(); });
    word();
    button.addEventListener("click", () => {
      if (timer !== null) { stop(); return; }
      set(i, at[i] === last ? 0 : at[i] + 1);
      if (calm.matches) return;
      playing = button;
      button.textContent = "Pause";
      readout.setAttribute("aria-live", "off"); // a moving picture must not talk without end
      timer = setInterval(() => {
        if (!el.isConnected) { stop(); return; }
        set(i, at[i] + 1);
        if (at[i] === last) stop();
      }, +button.dataset.ms);
    });
  }

  // JupyterLab binds these keys in command mode: here they belong to the controls.
  el.addEventListener("keydown", (e) => { if (/^(Arrow|Page|Home$|End$|Enter$| $)/.test(e.key)) e.stopPropagation(); });
  const form = el.querySelector(".rnj-controls");
  form.addEventListener("submit", (e) => e.preventDefault());
  form.hidden = false;
  for (const note of el.querySelectorAll(".rnj-note")) note.remove();
  show();
  el.dataset.ready = "1";
  return stop;
}
export default { render };
