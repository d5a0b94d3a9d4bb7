(() => {
  "use strict";

  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  // Sections fold beneath their headings.
  for (const section of document.querySelectorAll("main > section")) {
    const heading = section.querySelector(":scope > h2");
    if (!heading) continue;
    const button = make("button", { type: "button", className: "fold", ariaLabel: `Fold ${heading.textContent}` });
    const set = (folded) => {
      section.classList.toggle("folded", folded);
      button.setAttribute("aria-expanded", String(!folded));
    };
    button.addEventListener("click", () => set(!section.classList.contains("folded")));
    section.addEventListener("reveal", () => set(false));
    set(false);
    heading.append(button);
  }
  const reveal = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) return;
    const folded = target.closest(".folded");
    if (folded) folded.dispatchEvent(new Event("reveal"));
    let closed = false;
    for (let at = target.closest("details"); at; at = at.parentElement.closest("details")) {
      closed = closed || !at.open;
      at.open = true;
    }
    if (folded || closed) target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  // A link that is followed a second time changes no hash.
  addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link && link.hash === location.hash) reveal();
  });

  // On paper nothing can be unfolded.
  let unfolded = [];
  addEventListener("beforeprint", () => {
    unfolded = [...document.querySelectorAll("details:not([open])")];
    for (const one of unfolded) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of unfolded) one.open = false;
  });

  // Rows that share a name in data-filter are filtered together; of a list with data-most only so many show at first.
  const lists = new Map();
  for (const list of document.querySelectorAll("[data-filter]")) {
    lists.set(list.dataset.filter, [...(lists.get(list.dataset.filter) || []), list]);
  }
  const rowsOf = (list) => [...(list.tBodies ? list.tBodies[0].rows : list.children)];
  const choices = (rows, name) => [...new Set(rows.flatMap((row) => (row.dataset[name] || "").split("\n")))].sort();
  const FILTERS = ["class", "model", "metric", "word", "attribute", "label", "target", "classifier", "verdict"];
  const WORDS = { none: "clear" };

  for (const group of lists.values()) {
    const rows = group.flatMap(rowsOf);
    const most = Number(group[0].dataset.most) || Infinity;
    if (rows.length < 2) continue;
    let all = false;
    const text = make("input", { type: "search", placeholder: "Filter by text", ariaLabel: "Filter by text" });
    const selects = FILTERS.map((name) => {
      const options = choices(rows, name).filter(Boolean);
      const every = make("option", { value: "", textContent: `every ${name}` });
      const select = make("select", { ariaLabel: `Filter by ${name}`, hidden: options.length < 2 }, every);
      select.dataset.name = name;
      select.append(...options.map((value) => make("option", { value, textContent: WORDS[value] || value })));
      return select;
    });
    const count = make("span", { className: "count", role: "status" });
    const more = make("button", { type: "button", textContent: `Show all ${rows.length}`, hidden: rows.length <= most });
    const apply = () => {
      const sought = text.value.trim().toLowerCase();
      const chosen = selects.filter((select) => select.value);
      const filtered = Boolean(sought || chosen.length);
      let shown = 0;
      for (const list of group) {
        rowsOf(list).forEach((row, place) => {
          const fits =
            (!sought || row.textContent.toLowerCase().includes(sought)) &&
            chosen.every((select) => (row.dataset[select.dataset.name] || "").split("\n").includes(select.value));
          row.hidden = !(fits && (filtered || all || place < most));
          shown += !row.hidden;
        });
      }
      count.textContent = filtered ? `${shown} of ${rows.length}` : "";
      more.hidden = filtered || all || rows.length <= most;
    };
    text.addEventListener("input", apply);
    for (const select of selects) select.addEventListener("change", apply);
    more.addEventListener("click", () => ((all = true), apply()));
    for (const list of group) list.addEventListener("sorted", apply);
    group[0].before(make("div", { className: "tools", role: "search", ariaLabel: `Filter ${group[0].dataset.filter}` }, text, ...selects, count));
    group[group.length - 1].after(make("p", { className: "tools" }, more));
    apply();
  }

  // A click on a column's heading sorts by it, another turns the order round.
  const number = (text) => {
    const plain = text.replace(/\u2212/g, "-").replace(/,(?=\d{3}(?!\d))/g, "");
    const found = plain.match(/[-+]?\d+(?:\.\d+)?/);
    return found ? Number(found[0]) : NaN;
  };
  const textOf = (row, column) => {
    const cell = row.cells[column];
    return cell ? cell.dataset.value || cell.textContent.trim() : "";
  };
  const compare = (a, b) => {
    const [x, y] = [number(a), number(b)];
    if (a === "—" || b === "—") return (a === "—") - (b === "—");
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  };
  for (const table of document.querySelectorAll("table[data-sort]")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const button = make("button", { type: "button", className: "order" }, ...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        for (const other of headings) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => sign * compare(textOf(a, column), textOf(b, column)));
        table.tBodies[0].append(...rows);
        table.dispatchEvent(new Event("sorted"));
      });
    });
  }

  // A picture opens larger; arrows go to its neighbours, Escape and a click close it.
  const pictures = [...document.querySelectorAll(".gallery img")];
  const larger = make("img", { alt: "" });
  const told = make("p");
  const dialog = make("dialog", { className: "larger", ariaLabel: "The picture, larger" }, larger, told);
  let place = 0;
  const show = (to) => {
    place = (to + pictures.length) % pictures.length;
    larger.src = pictures[place].src;
    larger.alt = pictures[place].alt;
    const key = pictures[place].closest("figure").querySelector(".file");
    told.textContent = [key ? key.textContent : "", pictures[place].alt].filter(Boolean).join(" — ");
    if (!dialog.isConnected) document.body.append(dialog);
    if (!dialog.open) dialog.showModal();
  };
  dialog.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => pictures[place].focus());
  dialog.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) show(place + step);
  });
  pictures.forEach((picture, i) => {
    picture.tabIndex = 0;
    picture.setAttribute("role", "button");
    picture.addEventListener("click", () => show(i));
    picture.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      show(i);
    });
  });
  reveal();
})();
