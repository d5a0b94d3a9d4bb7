(() => {
  "use strict";

  const source = document.getElementById("explore-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const root = document.getElementById("explorer");
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const MOST_TILES = 48;
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#8a7a9b", "#6f7b86"]; // Okabe and Ito's
  const total = data.keys.length;
  const all = [...Array(total).keys()];
  let model = 0;
  let shown = all;
  let most = MOST_TILES;
  const selected = new Set();

  const answer = (i) => data.answers[model][i];
  const right = (i) => answer(i) === data.truth[i];
  const nameOf = (i) => (answer(i) < 0 ? "no answer" : data.names[answer(i)]);
  const sure = (i) => data.confidences[model][i];
  const shortened = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

  // Filters.
  const choice = (label, options, every) => {
    const select = make("select", { ariaLabel: label });
    if (every) select.append(make("option", { value: "", textContent: every }));
    select.append(...options.map(([value, text]) => make("option", { value, textContent: text })));
    select.hidden = options.length < 2;
    return select;
  };
  const numbered = (names) => names.map((name, i) => [String(i), name]);
  const bound = (label, value) =>
    make("input", { type: "number", min: "0", max: "1", step: "0.05", value, ariaLabel: label });
  const classifier = choice("Classifier", numbered(data.classifiers), "");
  const truth = choice("Class", numbered(data.classes), "every class");
  const OTHER = "other"; // answers that have no column of their own in the matrix
  const answers = choice("Answer", numbered(data.names), "every answer");
  answers.append(make("option", { value: OTHER, textContent: "other answers" }));
  const outcome = choice("Right or wrong", [["right", "right"], ["wrong", "wrong"]], "right and wrong");
  const valued = data.attributes.flatMap((attribute, a) =>
    attribute.values.map((value, v) => [`${a},${v}`, `${attribute.name}: ${value}`]),
  );
  const attribute = choice("Attribute", valued, "every attribute");
  const least = bound("Least confidence", "0");
  const greatest = bound("Greatest confidence", "1");
  const key = make("input", { type: "search", placeholder: "Name of the image", ariaLabel: "Filter by the image's name" });
  const reset = make("button", { type: "button", textContent: "Clear filters" });
  const count = make("span", { className: "count", role: "status" });
  const filters = [truth, answers, outcome, attribute, least, greatest, key];
  const fits = (i) => {
    if (truth.value && data.truth[i] !== Number(truth.value)) return false;
    if (answers.value === OTHER ? answer(i) < 0 || columns.has(answer(i)) : answers.value && answer(i) !== Number(answers.value)) return false;
    if (outcome.value && right(i) !== (outcome.value === "right")) return false;
    if (attribute.value) {
      const [a, v] = attribute.value.split(",").map(Number);
      if (data.attributes[a].of[i] !== v) return false;
    }
    const [low, high] = [Number(least.value) || 0, greatest.value === "" ? 1 : Number(greatest.value)];
    if ((low > 0 || high < 1) && !(sure(i) !== null && sure(i) >= low && sure(i) <= high)) return false;
    const sought = key.value.trim().toLowerCase();
    return !sought || data.keys[i].toLowerCase().includes(sought);
  };

  // Confusion matrix: counts are of the whole run, a click shows the pictures that the page holds.
  const matrix = make("div", { className: "scroll", tabIndex: 0, ariaLabel: "Confusion matrix" });
  matrix.setAttribute("role", "region");
  const matrixLine = make("p", { className: "beneath" });
  const pairs = new Map();
  let columns = new Map(); // answer → its column
  const drawMatrix = () => {
    const rows = data.confusions[model];
    const classes = data.matrix[model];
    const place = new Map(classes.map((c, i) => [c, i]));
    columns = place;
    const width = classes.length;
    const cells = classes.map(() => Array(width + 1).fill(0));
    for (const [t, a, n] of rows) {
      cells[place.get(t)][place.has(a) ? place.get(a) : width] += n;
    }
    const outside = cells.some((row) => row[width]);
    answers.lastChild.hidden = !outside;
    const head = make("tr", {}, make("th", { scope: "col" }, make("span", { className: "unseen", textContent: "Class" })));
    for (const c of [...classes.map((c) => data.classes[c]), ...(outside ? ["other answers"] : [])]) {
      head.append(make("th", { scope: "col", title: c }, make("span", { className: "turn", textContent: shortened(c, 18) })));
    }
    const body = make("tbody");
    pairs.clear();
    classes.forEach((c, i) => {
      const row = make("tr", {}, make("th", { scope: "row", title: data.classes[c], textContent: shortened(data.classes[c], 18) }));
      const sum = cells[i].reduce((x, y) => x + y, 0) || 1;
      cells[i].slice(0, outside ? width + 1 : width).forEach((n, j) => {
        const cell = make("td");
        if (n) {
          const same = j === i;
          cell.className = same ? "ok" : n / sum > 0.2 ? "w3" : n / sum > 0.05 ? "w2" : "w1";
          const to = j === width ? "other answers" : data.classes[classes[j]];
          const button = make("button", { type: "button", textContent: String(n), ariaLabel: `${data.classes[c]} answered ${to}: ${n} images` });
          button.setAttribute("aria-pressed", "false");
          button.addEventListener("click", () => {
            const on = button.getAttribute("aria-pressed") === "true";
            truth.value = on ? "" : String(c);
            outcome.value = "";
            answers.value = on ? "" : j === width ? OTHER : String(classes[j]);
            update();
            if (!on) list.scrollIntoView({ block: "nearest" });
          });
          pairs.set(`${c},${j === width ? OTHER : classes[j]}`, button);
          cell.append(button);
        }
        row.append(cell);
      });
      body.append(row);
    });
    matrix.replaceChildren(
      make("table", { className: "confusion" }, make("caption", { textContent: "Rows: the class; columns: the answer. A click shows the images." }), make("thead", {}, head), body),
    );
    matrixLine.textContent =
      classes.length < data.classes.length ? `The ${classes.length} of ${data.classes.length.toLocaleString("en")} classes with the most wrong answers.` : "";
  };

  // Map: images that lie near one another look alike; a line drawn around some of them selects them.
  const canvas = make("canvas", { className: "map", tabIndex: 0 });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-describedby", "map-line");
  const colouring = choice(
    "Colour of the map",
    [["outcome", "right and wrong"], ["class", "class"], ...data.attributes.map((one, i) => [String(i), one.name])],
    "",
  );
  const touch = make("button", { type: "button", textContent: "Draw with a finger" });
  touch.setAttribute("aria-pressed", "false");
  touch.addEventListener("click", () => touch.setAttribute("aria-pressed", String(canvas.classList.toggle("lasso"))));
  const legend = make("ul", { className: "swatches" });
  const SVG = "http" + "://www.w3.org/2000/svg";
  const swatch = (colour) => {
    const svg = document.createElementNS(SVG, "svg");
    const dot = document.createElementNS(SVG, "circle");
    svg.setAttribute("viewBox", "0 0 10 10");
    svg.setAttribute("aria-hidden", "true");
    for (const [name, value] of [["cx", 5], ["cy", 5], ["r", 5], ["fill", colour]]) dot.setAttribute(name, value);
    svg.append(dot);
    return svg;
  };
  let lasso = [];
  const groupOf = () => {
    if (colouring.value === "outcome") return [["right", "wrong"], (i) => (right(i) ? 0 : 1), [COLOURS[0], COLOURS[1]]];
    const [names, of] =
      colouring.value === "class"
        ? [data.classes, (i) => data.truth[i]]
        : [data.attributes[Number(colouring.value)].values, (i) => data.attributes[Number(colouring.value)].of[i]];
    const largest = COLOURS.length - 1;
    const counts = names.map((_, v) => all.filter((i) => of(i) === v).length);
    const order = [...names.keys()].sort((x, y) => counts[y] - counts[x] || x - y);
    const rank = new Map(order.map((v, r) => [v, Math.min(r, largest)]));
    const told = order.slice(0, largest).map((v) => names[v]);
    if (names.length > largest || all.some((i) => of(i) < 0)) told[largest] = names.length > largest ? "others" : "not known";
    return [told, (i) => (rank.has(of(i)) ? rank.get(of(i)) : largest), COLOURS];
  };
  const pointAt = (i, width, height) => [
    (0.5 + 0.47 * data.map[i][0]) * width,
    (0.5 - 0.47 * data.map[i][1]) * height,
  ];
  const drawMap = () => {
    const box = canvas.getBoundingClientRect();
    if (!box.width) return;
    const scale = window.devicePixelRatio || 1;
    canvas.width = box.width * scale;
    canvas.height = box.height * scale;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const [told, of, colours] = groupOf();
    const visible = new Set(shown);
    const ink = getComputedStyle(document.body).color;
    for (const i of all) {
      const [x, y] = pointAt(i, box.width, box.height);
      pen.globalAlpha = visible.has(i) ? 0.9 : 0.12;
      pen.fillStyle = colours[of(i)] || colours[colours.length - 1];
      pen.beginPath();
      // Wrong answers are squares: colour alone does not tell everybody.
      if (right(i)) pen.arc(x, y, 3, 0, 7);
      else pen.rect(x - 3, y - 3, 6, 6);
      pen.fill();
      if (selected.has(i)) {
        pen.globalAlpha = 1;
        pen.strokeStyle = ink;
        pen.lineWidth = 1.5;
        pen.stroke();
      }
    }
    pen.globalAlpha = 1;
    if (lasso.length > 1) {
      pen.strokeStyle = ink;
      pen.setLineDash([4, 3]);
      pen.beginPath();
      lasso.forEach(([x, y], n) => (n ? pen.lineTo(x, y) : pen.moveTo(x, y)));
      pen.stroke();
    }
    legend.replaceChildren(
      ...told.map((name, i) => (name === undefined ? "" : make("li", {}, swatch(colours[i]), shortened(name, 24)))).filter(Boolean),
    );
    canvas.ariaLabel = `Map of ${total} images, ${shown.length} of them fit the filters, ${selected.size} are selected`;
  };
  const inside = ([x, y], polygon) => {
    let odd = false;
    for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
      const [[ax, ay], [bx, by]] = [polygon[i], polygon[j]];
      if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) odd = !odd;
    }
    return odd;
  };
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch" && !canvas.classList.contains("lasso")) return;
    event.preventDefault();
    canvas.setPointerCapture(event.pointerId);
    lasso = [place(event)];
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!lasso.length) return;
    lasso.push(place(event));
    drawMap();
  });
  const finish = () => {
    if (!lasso.length) return;
    const [polygon, box] = [lasso, canvas.getBoundingClientRect()];
    lasso = [];
    const [x, y] = polygon[0];
    const near = shown.filter((i) => {
      const [px, py] = pointAt(i, box.width, box.height);
      return Math.hypot(px - x, py - y) < 7;
    });
    const length = polygon.reduce((sum, [px, py]) => Math.max(sum, Math.hypot(px - x, py - y)), 0);
    if (length < 4) {
      if (near.length) open(near[0], near);
    } else {
      selected.clear();
      for (const i of shown) if (inside(pointAt(i, box.width, box.height), polygon)) selected.add(i);
      tell();
    }
    drawMap();
  };
  canvas.addEventListener("pointerup", finish);
  canvas.addEventListener("pointercancel", () => ((lasso = []), drawMap()));
  colouring.addEventListener("change", drawMap);

  // Selected images, as a list of their names.
  const keys = make("textarea", { readOnly: true, ariaLabel: "Names of the selected images" });
  const told = make("span", { className: "count", role: "status" });
  const copy = make("button", { type: "button", textContent: "Copy names" });
  const save = make("button", { type: "button", textContent: "Save as a file" });
  const add = make("button", { type: "button", textContent: "Select what the filters leave" });
  const none = make("button", { type: "button", textContent: "Select none" });
  const list_of_keys = () => [...selected].sort((x, y) => x - y).map((i) => data.keys[i]).join("\n");
  const tell = () => {
    keys.value = list_of_keys();
    told.textContent = `${selected.size} selected`;
    copy.disabled = save.disabled = !selected.size;
    keys.hidden = !selected.size;
    for (const tile of list.querySelectorAll("button")) {
      tile.classList.toggle("selected", selected.has(Number(tile.dataset.image)));
    }
  };
  copy.addEventListener("click", async () => {
    keys.select();
    try {
      await navigator.clipboard.writeText(keys.value);
      told.textContent = `${selected.size} names copied`;
    } catch {
      // A page that is a file may not reach the clipboard: the text is selected for the reader to copy.
      told.textContent = document.execCommand("copy") ? `${selected.size} names copied` : "press Ctrl+C to copy";
    }
  });
  save.addEventListener("click", () => {
    const link = make("a", { href: URL.createObjectURL(new Blob([`${list_of_keys()}\n`], { type: "text/plain" })), download: "images.txt" });
    link.click();
    URL.revokeObjectURL(link.href);
  });
  add.addEventListener("click", () => {
    for (const i of shown) selected.add(i);
    tell();
    drawMap();
  });
  none.addEventListener("click", () => {
    selected.clear();
    tell();
    drawMap();
  });

  // Pictures that fit the filters; one opens larger with all that is known of it.
  const list = make("ul", { className: "tiles", ariaLabel: "Images" });
  const more = make("button", { type: "button" });
  more.addEventListener("click", () => {
    const from = most;
    most += MOST_TILES;
    drawTiles();
    list.children[from]?.querySelector("button").focus();
  });
  const drawTiles = () => {
    list.replaceChildren(
      ...shown.slice(0, most).map((i) => {
        const picture = data.pictures[i]
          ? make("img", { src: data.pictures[i], alt: "", loading: "lazy" })
          : make("span", { className: "gone", textContent: "cannot be shown" });
        const line = make("span", { className: right(i) ? "hit" : "miss", textContent: `${right(i) ? "✓" : "✗"} ${nameOf(i)}` });
        const tile = make("button", { type: "button" }, picture, line);
        tile.dataset.image = i;
        tile.ariaLabel = `${data.keys[i]}: ${data.classes[data.truth[i]]} answered ${nameOf(i)}`;
        tile.classList.toggle("selected", selected.has(i));
        tile.addEventListener("click", () => open(i, shown));
        return make("li", {}, tile);
      }),
    );
    more.textContent = `Show ${Math.min(MOST_TILES, shown.length - most)} more of ${shown.length}`;
    more.hidden = shown.length <= most;
  };
  const dialog = make("dialog", { className: "look" });
  let opened = null;
  const open = (i, among) => {
    const rows = [
      ["image", data.keys[i]],
      ["class", data.classes[data.truth[i]]],
      ...data.classifiers.map((name, m) => {
        const [a, c] = [data.answers[m][i], data.confidences[m][i]];
        const mark = a === data.truth[i] ? "✓" : "✗";
        return [data.classifiers.length > 1 ? name : "answer", `${mark} ${a < 0 ? "no answer" : data.names[a]}${c === null ? "" : `, confidence ${c.toFixed(2)}`}`];
      }),
      ["cells", data.cells[i]],
    ];
    const step = (by) => open(among[(among.indexOf(i) + by + among.length) % among.length], among);
    const mark = make("button", { type: "button", textContent: selected.has(i) ? "Take out of the selection" : "Add to the selection" });
    mark.addEventListener("click", () => {
      if (!selected.delete(i)) selected.add(i);
      tell();
      drawMap();
      open(i, among);
    });
    const before = make("button", { type: "button", textContent: "← Before" });
    const next = make("button", { type: "button", textContent: "Next →" });
    const close = make("button", { type: "button", textContent: "Close" });
    before.addEventListener("click", () => step(-1));
    next.addEventListener("click", () => step(1));
    close.addEventListener("click", () => dialog.close());
    dialog.onkeydown = (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (by) step(by);
    };
    dialog.ariaLabel = `Image ${data.keys[i]}`;
    dialog.replaceChildren(
      data.pictures[i] ? make("img", { src: data.pictures[i], alt: `${data.classes[data.truth[i]]}, answered ${nameOf(i)}` }) : make("p", { textContent: "The picture cannot be shown here." }),
      make("dl", {}, ...rows.filter(([, value]) => value).flatMap(([name, value]) => [make("dt", { textContent: name }), make("dd", { textContent: value })])),
      make("div", { className: "tools" }, before, next, mark, close),
    );
    opened = i;
    if (!dialog.open) dialog.showModal();
    next.focus();
  };
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => {
    const tile = list.querySelector(`[data-image="${opened}"]`);
    (tile || canvas).focus();
  });

  const update = () => {
    // Wrong answers first, the surest of them at the head.
    shown = all.filter(fits).sort((x, y) => right(x) - right(y) || (sure(y) || 0) - (sure(x) || 0) || x - y);
    most = MOST_TILES;
    count.textContent = `${shown.length} of ${total} images`;
    const pressed = `${truth.value},${answers.value}`;
    for (const [pair, button] of pairs) button.setAttribute("aria-pressed", String(truth.value !== "" && pair === pressed));
    drawTiles();
    drawMap();
    tell();
  };
  for (const filter of filters) filter.addEventListener("input", update);
  reset.addEventListener("click", () => {
    for (const filter of filters) filter.value = filter === greatest ? "1" : filter === least ? "0" : "";
    update();
  });
  classifier.addEventListener("change", () => {
    model = Number(classifier.value);
    drawMatrix();
    update();
  });

  const about =
    data.mapped === "embeddings"
      ? "Images that lie near one another are alike to the encoder: the first two principal components of its embeddings."
      : "Images that lie near one another have like colours in like places: two principal components of the pictures at 8 × 8 pixels, since no encoder took part.";
  root.append(
    make("div", { className: "tools", role: "search", ariaLabel: "Filter the images" }, classifier, truth, answers, outcome, attribute,
      make("label", {}, "confidence", least, "to", greatest), key, reset, count),
    make("div", { className: "explorer-panes" },
      // Of labels that are each given on their own, no answer stands in the place of another.
      make("div", { hidden: data.each }, make("h3", { textContent: "Confusions" }), matrix, matrixLine),
      make("div", {}, make("h3", { textContent: "Map" }), make("div", { className: "tools" }, make("label", {}, "colour", colouring), touch), canvas, legend,
        make("p", { className: "beneath", id: "map-line", textContent: `${about} Squares are wrong answers. Draw around images to select them, or select what the filters leave.` }))),
    make("div", { className: "selection" }, make("div", { className: "tools" }, add, none, copy, save, told), keys),
    make("h3", { textContent: "Images" }),
    list,
    make("p", { className: "tools" }, more),
    dialog,
  );
  drawMatrix();
  update();
  new ResizeObserver(drawMap).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMap);
})();
