/* Page 1 moves: htmx fetches its figures, this draws its curves. Without it the page stands still. */
"use strict";
(() => {
  const INK = "#51606e", MAIN = "#17508a", WORST = "#b00020", EVERY_MS = 10000, HEIGHT = 135;
  const places = () => [...document.querySelectorAll("[data-plot]")];
  const held = () => document.getElementById("pause")?.checked;
  const drawn = new Map();

  const axis = (more) => ({ stroke: INK, font: "11px system-ui", grid: { stroke: "#e9eef3" }, size: 34, ...more });
  const bars = (labels) => ({
    scales: { x: { time: false, range: (_, __, most) => [-0.6, Math.max(most, 0) + 0.6] }, y: { range: (_, __, most) => [0, Math.max(most || 0, 1)] } },
    axes: [axis({ splits: () => labels.map((_, i) => i), values: () => labels, size: 24 }), axis({ incrs: [1, 2, 5, 10, 50, 100, 500, 1000, 5000, 10000, 100000, 1000000] })],
    series: [{}, { fill: MAIN, stroke: MAIN, paths: uPlot.paths.bars({ size: [0.7, 60] }), points: { show: false } }],
  });
  const plots = {
    latency: (d) => [{
      scales: { x: { range: () => [d.to_s - 3600, d.to_s] }, y: { range: (_, __, most) => [0, Math.max(most || 0, 1)] } },
      axes: [axis({ size: 24, values: (_, at) => at.map((s) => new Date(s * 1000).toISOString().slice(11, 16)) }), axis({})],
      series: [{}, { stroke: MAIN, width: 2, points: { show: d.minutes_s.length < 3 } }, { stroke: WORST, width: 1, points: { show: d.minutes_s.length < 3 } }],
    }, [d.minutes_s, d.half_s, d.most_s], d.minutes_s.length ? "" : "nothing was settled in the last hour"],
    ages: (d) => [bars(d.labels), [d.labels.map((_, i) => i), d.counts], d.counts.some(Boolean) ? "" : "nothing is in flight"],
    lag: (d) => d.unread ? [null, null, d.unread] : [bars(d.partitions.map(String)), [d.partitions.map((_, i) => i), d.records], ""],
  };

  function draw(name, place, data) {
    const [options, values, said] = plots[name](data);
    drawn.get(name)?.destroy();
    drawn.delete(name);
    place.textContent = said;
    if (said || !options) return;
    drawn.set(name, new uPlot({ width: place.clientWidth, height: HEIGHT, legend: { show: false }, cursor: { show: false }, ...options }, values, place));
  }

  async function refresh() {
    if (held() || !places().length) return;
    try {
      const answer = await fetch("/curves", { headers: { accept: "application/json" } });
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      const data = await answer.json();
      for (const place of places()) draw(place.dataset.plot, place, data[place.dataset.plot]);
    } catch (error) {
      for (const place of places()) {
        drawn.get(place.dataset.plot)?.destroy();
        drawn.delete(place.dataset.plot);
        place.textContent = `not read: ${error.message}`;
      }
    }
    document.body.dataset.drawn = String(drawn.size);
  }

  function stale() {
    const told = document.getElementById("stale");
    if (told) told.textContent = "NOT UPDATED SINCE: the console does not answer";
  }

  // Whoever is in it with the keyboard, or has opened something, would be thrown out by a new one.
  const inUse = () => {
    const now = document.getElementById("now");
    return now && (now.contains(document.activeElement) || now.querySelector("details[open]"));
  };
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (!held() && !inUse()) return;
    event.preventDefault();
    const told = document.getElementById("stale");
    if (told) told.textContent = held() ? "held still" : "stands still while it is in use";
  });
  document.addEventListener("htmx:sendError", stale);
  document.addEventListener("htmx:timeout", stale);
  if (places().length) { refresh(); setInterval(refresh, EVERY_MS); }
})();
