(function () {
  // Shows the frames of one element, one after another.
  const box = document.getElementById("BOX");
  const frames = box.querySelectorAll("figure");
  const controls = document.createElement("div");
  const button = document.createElement("button");
  const slider = document.createElement("input");
  let timer = 0;
  function show(i) {
    frames.forEach((frame, k) => { frame.style.display = k === i ? "" : "none"; });
    slider.value = i;
  }
  function play() {
    button.textContent = "Pause";
    timer = setInterval(() => {
      if (!box.isConnected) { pause(); return; }
      show((Number(slider.value) + 1) % frames.length);
    }, 1200);
  }
  function pause() {
    button.textContent = "Play";
    clearInterval(timer);
    timer = 0;
  }
  button.type = "button";
  button.addEventListener("click", () => { if (timer) { pause(); } else { play(); } });
  Object.assign(slider, { type: "range", min: 0, max: frames.length - 1 });
  slider.setAttribute("aria-label", "step");
  slider.addEventListener("input", () => { pause(); show(Number(slider.value)); });
  slider.style.flex = "1";
  controls.style.cssText = "display:flex;gap:8px;align-items:center";
  controls.append(button, slider);
  box.append(controls);
  show(0);
  play();
})();
