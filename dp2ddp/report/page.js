// Reading a chart at a step: a slider under each one (keys, touch), and the pointer over it. The page is whole without this.
"use strict";
for (const figure of document.querySelectorAll("figure.chart")) {
  const points = JSON.parse(figure.querySelector("script.points").textContent);
  const plot = figure.querySelector(".plot");
  const make = (tag, parent, properties) => parent.appendChild(Object.assign(document.createElement(tag), properties));
  const cursor = make("div", plot, {className: "cursor", hidden: true});
  const reading = make("div", figure, {className: "reading"});
  figure.querySelector(".frame").after(reading);
  const id = figure.id + "-at";
  make("label", reading, {htmlFor: id, textContent: "read at"});
  const slider = make("input", reading, {type: "range", id: id, min: 0, max: points.steps.length - 1, value: 0});
  const output = make("output", reading, {htmlFor: id});
  slider.setAttribute("aria-label", "Step to read in: " + figure.querySelector("h3").textContent);
  const words = column => points.lines.map(([name, texts]) => name + " " + texts[column]).join(" · ");
  const show = column => {
    slider.value = column;
    cursor.hidden = false;
    cursor.style.left = (column + 0.5) / points.steps.length * 100 + "%";
    output.textContent = "step " + points.steps[column] + " · " + words(column);
    slider.setAttribute("aria-valuetext", output.textContent);
  };
  show(points.start ?? points.steps.length - 1);
  cursor.hidden = true;
  slider.addEventListener("input", () => show(Number(slider.value)));
  slider.addEventListener("focus", () => show(Number(slider.value)));
  plot.addEventListener("pointermove", event => {
    const box = plot.getBoundingClientRect(), count = points.steps.length;
    show(Math.min(count - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * count))));
  });
}
