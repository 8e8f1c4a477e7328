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

function draw(plot) {
  if (plot.dataset.drawn) return;
  plot.dataset.drawn = "started";
  vegaEmbed(plot, JSON.parse(plot.nextElementSibling.textContent), { renderer: "svg", config: configFor(plot.clientWidth), actions, tooltip: { theme: isDark ? "dark" : "light" } })
    .then(() => { plot.dataset.drawn = "done"; })
    .catch((error) => { console.error(plot.getAttribute("aria-label"), error); });
}

// A chart in a closed <details> has no width yet; it is drawn when opened.
const drawVisible = () => document.querySelectorAll(".plot").forEach((plot) => { if (plot.clientWidth) draw(plot); });
const showVisible = () => { drawVisible(); fitVisible(); };
document.querySelectorAll("details").forEach((details) => details.addEventListener("toggle", showVisible));

// Columns that do not fit are left out: from the right, and those that every document has last. A switch shows them.
function fit(figure) {
  const frame = figure.querySelector(".scroll");
  const switchOf = figure.querySelector(".more");
  if (!frame.clientWidth || figure.dataset.fitted === String(frame.clientWidth)) return;
  figure.dataset.fitted = String(frame.clientWidth);
  figure.classList.remove("all");
  figure.querySelectorAll(".extra").forEach((cell) => cell.classList.remove("extra"));
  const headings = [...figure.querySelectorAll("th")];
  const indices = [...headings.keys()].slice(2).reverse();
  const order = [false, true].flatMap((isBrief) => indices.filter((index) => headings[index].hasAttribute("data-brief") === isBrief));
  let numHidden = 0;
  while (frame.scrollWidth > frame.clientWidth && numHidden < order.length) {
    for (const row of figure.querySelectorAll("tr")) row.cells[order[numHidden]].classList.add("extra");
    numHidden += 1;
  }
  switchOf.hidden = numHidden === 0;
  switchOf.textContent = `${numHidden} more columns`;
  switchOf.setAttribute("aria-pressed", "false");
}
const fitVisible = () => document.querySelectorAll("figure.table").forEach(fit);
document.querySelectorAll(".more").forEach((button) => button.addEventListener("click", () => {
  const showsAll = button.closest("figure").classList.toggle("all");
  button.setAttribute("aria-pressed", String(showsAll));
}));
addEventListener("resize", fitVisible);
showVisible();

// What is folded is printed too; the tables of single charts are not.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("section > details:not([open]), details.facts:not([open]), details.oversubscribed details:not([open])")];
  opened.forEach((details) => { details.open = true; });
  showVisible();
});
addEventListener("afterprint", () => opened.forEach((details) => { details.open = false; }));

function compare(...cells) {
  const [a, b] = cells.map((cell) => (cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value)));
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === typeof b) return a.localeCompare(b);
  return typeof a === "number" ? -1 : 1;
}

document.querySelectorAll("figure.table").forEach((figure) => {
  const body = figure.querySelector("tbody");
  const headings = [...figure.querySelectorAll("th")];
  headings.forEach((heading, index) => heading.querySelector("button").addEventListener("click", () => {
    const order = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    headings.forEach((sorted) => sorted.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const isEmpty = (row) => row.cells[index].textContent === "-";
    const rows = [...body.rows].sort((a, b) => isEmpty(a) - isEmpty(b) || sign * compare(a.cells[index], b.cells[index]));
    body.append(...rows);
  }));
  const filter = figure.querySelector("input");
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of body.rows) {
      const cells = [...row.cells].map((cell) => cell.textContent.toLowerCase());
      row.hidden = !words.every((word) => cells.some((cell) => cell.includes(word)));
    }
    const shown = [...body.rows].filter((row) => !row.hidden).length;
    figure.querySelector("output").textContent = words.length ? `${shown} of ${body.rows.length} rows` : "";
  });
});
