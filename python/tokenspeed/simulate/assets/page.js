// Hovering over a chart shows each curve's value at the point nearest to the pointer.
for (const chart of document.querySelectorAll(".chart")) {
  const lines = JSON.parse(chart.querySelector("script").textContent);
  const [svg, tip, cursor] = ["svg", ".tip", ".cursor"].map((name) => chart.querySelector(name));
  const width = svg.viewBox.baseVal.width;

  const nearest = (points, x) =>
    points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));

  const row = (tone, text) => {
    const line = document.createElement("div");
    if (tone !== null) {
      const mark = document.createElement("i");
      mark.className = `c${tone}`;
      line.append(mark);
    }
    line.append(text);
    return line;
  };

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * width;
    const found = lines.map((line) => (line.points.length ? nearest(line.points, x) : null));
    const at = found.filter(Boolean).reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
    const shared = found.every((point) => point && point[1] === at[1]);
    tip.replaceChildren(
      ...(shared ? [row(null, at[1])] : []),
      ...found.map((point, n) =>
        point && row(lines[n].tone, `${lines[n].name}: ${shared ? "" : `${point[1]}, `}${point[2]}`)).filter(Boolean),
    );
    tip.style.display = "block";
    const left = (at[0] / width) * box.width;
    tip.style.left = `${left + 14 + tip.offsetWidth > box.width ? left - tip.offsetWidth - 14 : left + 14}px`;
    cursor.setAttribute("x1", at[0]);
    cursor.setAttribute("x2", at[0]);
    cursor.style.visibility = "visible";
  });
  svg.addEventListener("pointerleave", () => {
    tip.style.display = "none";
    cursor.style.visibility = "hidden";
  });
}
