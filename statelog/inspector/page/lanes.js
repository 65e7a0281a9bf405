// The branches of a thread as lanes, the newest version at the top. A row has the same version of every branch.

import { svg } from "./dom.js";

export const ROW = 44;
const GAP = 16;
const LEFT = 22;
const LANES_MAX = 8;
const COLOURS = 6;

/**
 * Return where to draw branches if `selected` is the selected branch: {line, lanes, width, hidden}. `line` has the
 * parts of branches that lead to the selected head, in lane 0. `lanes` has the other branches: {name, base, head, lane,
 * from}.
 */
export function layout(branches, selected) {
  const byName = new Map(branches.map((branch) => [branch.name, branch]));
  const line = [];
  const ends = new Map(); // The last version of each branch in `line`.
  for (let branch = byName.get(selected), end = branch?.head ?? -1; branch; branch = byName.get(branch.parent)) {
    line.push({ name: branch.name, base: branch.base, end });
    ends.set(branch.name, end);
    end = Math.min(end, branch.base);
  }
  const busy = []; // The version up to which each lane is occupied.
  const lanes = [];
  const laneOf = new Map();
  let hidden = 0;
  const others = branches
    .map((branch) => ({ ...branch, base: ends.has(branch.name) ? ends.get(branch.name) : branch.base }))
    .filter((branch) => branch.name !== selected && branch.head > branch.base)
    .sort((one, other) => one.base - other.base);
  for (const branch of others) {
    let lane = busy.findIndex((end) => end < branch.base);
    if (lane < 0) lane = busy.length;
    if (lane >= LANES_MAX) {
      hidden += 1;
      continue;
    }
    busy[lane] = branch.head;
    const parent = ends.has(branch.name) ? branch.name : branch.parent;
    const isOnLine = ends.has(parent) && branch.base <= ends.get(parent);
    laneOf.set(branch.name, lane + 1);
    lanes.push({ name: branch.name, base: branch.base, head: branch.head, lane: lane + 1, from: isOnLine ? 0 : (laneOf.get(parent) ?? 0) });
  }
  return { line, lanes, hidden, width: LEFT + GAP * (busy.length + 1) };
}

/** Return the name of the branch in `plan.line` that has a version. */
export function ownerOf(plan, version) {
  return plan.line.find((part) => version > part.base && version <= part.end)?.name ?? plan.line.at(-1)?.name;
}

/**
 * Return the lanes between two rows as SVG.
 *
 * @param plan the result of `layout`. @param head the version of row 0. @param first the first row.
 * @param last the last row. @param rows a map from versions to rows of the list. @param selected the selected version.
 * @param choose called with (branch, version) of a clicked dot.
 */
export function draw(plan, head, first, last, rows, selected, choose) {
  const y = (version) => (head - version - first) * ROW + ROW / 2;
  const x = (lane) => LEFT + GAP * lane;
  const newest = head - first;
  const oldest = Math.max(0, head - last);
  const shapes = [];
  const dots = [];

  function dot(name, version, lane, isSelected) {
    const circle = svg("circle", { cx: x(lane), cy: y(version), r: isSelected ? 6 : 4, class: `dot lane-${lane % COLOURS}${isSelected ? " is-selected" : ""}` });
    const hit = svg("circle", { cx: x(lane), cy: y(version), r: 9, class: "hit", onclick: () => choose(name, version) });
    hit.append(svg("title", {}, `${name}, version ${version}`));
    dots.push(circle, hit);
  }

  const top = Math.min(newest + 1, head);
  shapes.push(svg("path", { class: "lane lane-0", d: `M${x(0)} ${y(top)}V${y(Math.max(oldest - 1, 0))}` }));
  for (const each of plan.lanes) {
    if (each.base > newest + 1 || each.head < oldest - 1) continue;
    const to = Math.min(each.head, newest + 2);
    const bend = y(each.base) - ROW / 2;
    shapes.push(
      svg("path", {
        class: `lane lane-${each.lane % COLOURS}`,
        d: `M${x(each.from)} ${y(each.base)}C${x(each.from)} ${bend} ${x(each.lane)} ${bend} ${x(each.lane)} ${y(each.base + 1)}V${y(to)}`,
      }),
    );
    for (let version = Math.max(each.base + 1, oldest); version <= Math.min(each.head, newest); version += 1) dot(each.name, version, each.lane, false);
  }
  for (let version = oldest; version <= newest; version += 1) {
    const row = rows.get(version);
    if (row?.kind === "rollback" && row.parent) {
      const from = y(row.parent.version);
      shapes.push(svg("path", { class: "back", d: `M${x(0)} ${from}C4 ${from} 4 ${y(version)} ${x(0) - 5} ${y(version)}` }));
    }
    if (row !== null) dot(row?.branch ?? ownerOf(plan, version), version, 0, version === selected);
  }
  return svg("svg", { class: "lanes", width: plan.width, height: (last - first + 1) * ROW, "aria-hidden": "true" }, shapes, dots);
}
