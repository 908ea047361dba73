// Looks at pages as a person would, and writes what is wrong with them into the document: see test_browser.py.
// PAGES is a list of {name, width, html}; ACTIONS asks to use the page, too.
const wrong = {};

function outside(inner, outer) {
  return inner.left < outer.left - 1 || inner.right > outer.right + 1;
}

function overlap(a, b) {
  return a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
}

function texts(page) {
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  const pieces = [];
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || parent.closest("script, style, title, option")) continue;
    const range = page.createRange();
    range.selectNodeContents(walker.currentNode);
    for (const box of range.getClientRects()) if (box.width) pieces.push({ text: walker.currentNode.textContent.trim(), parent, box });
  }
  return pieces;
}

function luminance(colour) {
  const [red, green, blue] = colour.match(/[\d.]+/g).slice(0, 3).map((part) => (part / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function faults(page) {
  const faulty = [];
  const root = page.documentElement;
  if (root.scrollWidth > root.clientWidth) faulty.push(`overflows: ${root.scrollWidth} of ${root.clientWidth}`);
  const around = { left: 0, right: root.clientWidth };
  const labels = new Map();
  for (const { text, parent, box } of texts(page)) {
    const card = parent.closest("section, details, dl > div")?.getBoundingClientRect() ?? around;
    if (outside(box, card)) faulty.push(`cut: ${text}`);
    if (box.height < 8) faulty.push(`too small: ${text}`);
    const picture = parent.closest("text") && parent.closest("figure, .heat, th.bar");
    if (picture && !parent.closest(".slanted")) labels.set(picture, [...(labels.get(picture) ?? []), { text, box }]);
  }
  for (const [, near] of labels) {
    near.forEach((a, i) => near.slice(i + 1).forEach((b) => overlap(a.box, b.box) && faulty.push(`covers: ${a.text}, ${b.text}`)));
  }
  for (const box of page.querySelectorAll("td, th, dd, dt, p, pre, button, select, li, figcaption")) {
    if (box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).display !== "inline") faulty.push(`hides text: ${box.textContent.slice(0, 40)}`);
  }
  const style = page.defaultView.getComputedStyle(page.body);
  const [ground, ink] = [luminance(style.backgroundColor), luminance(style.color)];
  const contrast = (Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05);
  if (contrast < 7) faulty.push(`contrast ${contrast}`);
  return { faulty, dark: ground < ink, script: root.classList.contains("js"), drawn: texts(page).length };
}

function use(page) {
  const win = page.defaultView;
  const table = page.querySelector("section.group:not([hidden]) table") ?? page.querySelector("table");
  const first = () => table.tBodies[0].rows[0].cells[0].textContent;
  const used = { rows: [first()] };
  const heads = [...table.tHead.querySelectorAll("th:not(.bar) button")];
  heads[0].click();
  used.rows.push(first());
  heads[0].click();
  used.rows.push(first());
  const mark = table.querySelector("td.bar");
  mark.dispatchEvent(new win.PointerEvent("pointermove", { bubbles: true, clientX: 40, clientY: 40 }));
  used.tip = page.querySelector(".tip").textContent;
  win.Blob = function (parts) { used.csv = parts.join(""); };
  win.URL.createObjectURL = () => "#";
  table.nextElementSibling.lastElementChild.click();
  const search = table.nextElementSibling.querySelector("input");
  if (search) {
    search.value = first();
    search.dispatchEvent(new win.Event("input"));
    used.matches = [...table.tBodies[0].rows].filter((row) => row.offsetHeight).length;
  }
  const select = page.querySelector(".chooser select");
  if (select) {
    select.value = select.options[1].value;
    select.dispatchEvent(new win.Event("change"));
    used.chosen = [...page.querySelectorAll("section.group")].filter((group) => group.offsetHeight).map((group) => group.dataset.title);
  }
  return used;
}

async function look({ name, width, html, actions }) {
  const frame = document.createElement("iframe");
  frame.style = `border: 0; width: ${width}px; height: 900px`;
  frame.srcdoc = html;
  const loaded = new Promise((resolve) => frame.addEventListener("load", resolve));
  document.body.append(frame);
  await loaded;
  const page = frame.contentDocument;
  page.querySelectorAll("details").forEach((part) => (part.open = true));
  const before = faults(page);
  wrong[`${name} ${width}`] = actions ? { ...before, used: use(page) } : before;
  frame.remove();
}

(async () => {
  for (const page of PAGES) await look(page).catch((error) => (wrong[page.name] = { error: String(error) }));
  document.body.replaceChildren(Object.assign(document.createElement("pre"), { id: "result", textContent: JSON.stringify(wrong) }));
})();
