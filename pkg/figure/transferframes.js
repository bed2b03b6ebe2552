(function () {
  // Shows the frames of one element, one after another.
  const box = document.getElementById("BOX");
  const frames = box.querySelectorAll("svg > g");
  const button = box.querySelector("button");
  const slider = box.querySelector("input");
  const title = box.querySelector("output");
  let timer = 0;
  function show(i) {
    frames.forEach((g, k) => { g.style.display = k === i ? "" : "none"; });
    slider.value = i;
    title.textContent = frames[i].dataset.title;
  }
  function play() {
    button.textContent = "Pause";
    timer = setInterval(() => {
      if (!box.isConnected) { clearInterval(timer); return; }
      show((Number(slider.value) + 1) % frames.length);
    }, 1200);
  }
  function pause() {
    button.textContent = "Play";
    clearInterval(timer);
    timer = 0;
  }
  button.addEventListener("click", () => { if (timer) { pause(); } else { play(); } });
  slider.addEventListener("input", () => { pause(); show(Number(slider.value)); });
  show(0);
  play();
})();
