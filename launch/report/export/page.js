"use strict";
const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
const font = getComputedStyle(document.body).fontFamily;
const configFor = (width) => ({
  background: null, font, view: { stroke: null },
  axis: { labelFontSize: 11, titleFontSize: 11, titleFontWeight: "normal" },
  axisX: { tickCount: width < 450 ? 5 : 8 },
  legend: { labelFontSize: 11, symbolSize: 80, labelLimit: 220, columns: width < 450 ? 2 : 3 },
});
const actions = { export: true, source: false, compiled: false, editor: false };
const tooltip = { theme: isDark ? "dark" : "light" };

for (const plot of document.querySelectorAll(".plot")) {
  const spec = JSON.parse(plot.nextElementSibling.textContent);
  vegaEmbed(plot, spec, { renderer: "svg", config: configFor(plot.clientWidth), actions, tooltip })
    .then(() => { plot.dataset.drawn = "done"; })
    .catch((error) => { console.error(plot.getAttribute("aria-label"), error); });
}

// What is folded is printed too.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  opened.forEach((details) => { details.open = true; });
});
addEventListener("afterprint", () => opened.forEach((details) => { details.open = false; }));

// Numbers come before texts, and empty cells last.
function compare(...cells) {
  const [a, b] = cells.map((cell) => (cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value)));
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === typeof b) return a.localeCompare(b);
  return typeof a === "number" ? -1 : 1;
}

for (const table of document.querySelectorAll("table")) {
  const headings = [...table.querySelectorAll("th")];
  headings.forEach((heading, index) => heading.querySelector("button").addEventListener("click", () => {
    const order = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    headings.forEach((sorted) => sorted.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const isEmpty = (row) => row.cells[index].textContent === "-";
    const rows = [...table.tBodies[0].rows].sort((a, b) => isEmpty(a) - isEmpty(b) || sign * compare(a.cells[index], b.cells[index]));
    table.tBodies[0].append(...rows);
  }));
}
