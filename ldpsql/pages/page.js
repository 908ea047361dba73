
"use strict";
// The page is whole without this script; it adds tooltips, sorting, searching, downloads, and a choice of groups.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (name, properties, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  document.documentElement.classList.add("js");

  // Tables. The worth of a cell is in its <data> elements, that of a row's name is its text without one.
  const worths = (cell) => all("data", cell).map((data) => data.value);
  const named = (row) => worths(row.cells[0])[0] ?? row.cells[0].textContent;
  const rowsOf = (table) => [...table.tBodies[0].rows];

  function compare(a, b) {
    const difference = Number(a) - Number(b);
    return a !== "" && b !== "" && !Number.isNaN(difference) ? difference : a.localeCompare(b, undefined, { numeric: true });
  }

  function sort(table, column, falling) {
    const key = (row) => (column ? worths(row.cells[column])[0] ?? "" : named(row));
    const keyed = rowsOf(table).map((row) => [key(row), row]);
    keyed.sort(([a], [b]) => (falling ? compare(b, a) : compare(a, b)));
    table.tBodies[0].append(...keyed.map(([, row]) => row));
  }

  function csv(table) {
    const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const lines = rowsOf(table).map((row) => [named(row), ...[...row.cells].slice(1).flatMap(worths)]);
    return [table.dataset.names.split(","), ...lines].map((line) => line.map(quoted).join(",") + "\r\n").join("");
  }

  function download(table) {
    const address = URL.createObjectURL(new Blob([csv(table)], { type: "text/csv" }));
    make("a", { href: address, download: `${table.dataset.name}.csv` }).click();
    URL.revokeObjectURL(address);
  }

  function equip(table) {
    const top = Number(table.dataset.top);
    const many = rowsOf(table).length > top;
    let whole = false;
    const search = make("input", { type: "search", placeholder: "Find a value" });
    const more = make("button", { type: "button" });
    const refresh = () => {
      const wanted = search.value.trim().toLowerCase();
      let matches = 0;
      for (const row of rowsOf(table)) {
        const match = !wanted || row.cells[0].textContent.toLowerCase().includes(wanted);
        matches += match;
        row.classList.toggle("rest", !match || (!whole && matches > top));
      }
      more.textContent = whole ? `Show the first ${top}` : `Show all ${matches.toLocaleString("en")}`;
      more.hidden = matches <= top;
    };
    all("th", table.tHead).forEach((head, column) => {
      if (head.classList.contains("bar")) return;
      const button = make("button", { type: "button" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const falling = head.ariaSort ? head.ariaSort === "ascending" : column > 0;
        all("th", table.tHead).forEach((other) => (other.ariaSort = null));
        head.ariaSort = falling ? "descending" : "ascending";
        sort(table, column, falling);
        refresh();
      });
    });
    search.addEventListener("input", refresh);
    more.addEventListener("click", () => { whole = !whole; refresh(); });
    const save = make("button", { type: "button" }, "Download CSV");
    save.addEventListener("click", () => download(table));
    table.after(make("div", { className: "tools" }, ...(many ? [search, more] : []), save));
    refresh();
  }
  all("table.sortable").forEach(equip);

  // Groups: one at a time, chosen from a list or by the link to it.
  const groups = all("section.group");
  if (groups.length > 1) {
    const options = groups.map((group) => make("option", { value: group.id }, group.dataset.title));
    const select = make("select", { id: "chooser" }, ...options, make("option", { value: "" }, "All groups"));
    const choose = (id) => {
      select.value = id;
      groups.forEach((group) => (group.hidden = id !== "" && group.id !== id));
    };
    select.addEventListener("change", () => choose(select.value));
    groups[0].before(make("div", { className: "chooser" }, make("label", { htmlFor: "chooser" }, "Group"), select));
    const linked = () => groups.find((group) => `#${group.id}` === location.hash);
    window.addEventListener("hashchange", () => {
      if (linked()) { choose(linked().id); linked().scrollIntoView(); }
    });
    choose((linked() ?? groups[0]).id);
    window.addEventListener("beforeprint", () => groups.forEach((group) => (group.hidden = false)));
    window.addEventListener("afterprint", () => choose(select.value));
  }
  window.addEventListener("beforeprint", () => all("details").forEach((part) => (part.open = true)));

  // Tooltips: what a mark's <title> says, at the pointer and without delay.
  const tip = make("div", { className: "tip", hidden: true });
  document.body.append(tip);
  const said = (mark) => {
    const title = mark?.querySelector(":scope > title");
    if (title) { mark.dataset.tip = title.textContent; title.remove(); }
    return mark?.dataset.tip ?? "";
  };
  document.addEventListener("pointermove", ({ target, clientX, clientY }) => {
    const mark = target.closest("rect, circle, td.bar");
    const text = said(mark?.matches("td") || mark?.closest("td.bar") ? mark.closest("td.bar").firstElementChild : mark);
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    tip.style.left = `${Math.max(4, Math.min(clientX + 12, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${clientY + 16 + tip.offsetHeight < innerHeight ? clientY + 16 : clientY - tip.offsetHeight - 8}px`;
  });
  document.addEventListener("pointerleave", () => (tip.hidden = true));
})();
