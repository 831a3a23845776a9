'use strict';

// Tables: a click on a column sorts the rows by it; numbers begin with the largest, rows without a value come last.
for (const table of document.querySelectorAll('figure.table table')) {
  const body = table.tBodies[0];
  const limit = Number(table.dataset.shown ?? Infinity);
  let all = limit === Infinity;
  const fold = () => [...body.rows].forEach((row, at) => { row.hidden = !all && at >= limit; });
  const key = (row, at) => {
    const cell = row.cells[at];
    return cell.classList.contains('n') ? Number(cell.dataset.value ?? NaN) : cell.textContent;
  };
  const compare = (a, b) => typeof a === 'number' ? a - b : a.localeCompare(b, 'en', { numeric: true });
  table.tHead.addEventListener('click', event => {
    const head = event.target.closest('th');
    if (!head) return;
    const first = head.classList.contains('n') ? 'descending' : 'ascending';
    const other = first === 'ascending' ? 'descending' : 'ascending';
    const order = head.ariaSort === first ? other : first;
    for (const cell of head.parentNode.cells) cell.ariaSort = cell === head ? order : null;
    const sign = order === 'ascending' ? 1 : -1;
    const rows = [...body.rows].map(row => [key(row, head.cellIndex), row]);
    rows.sort(([a], [b]) => (Number.isNaN(a) - Number.isNaN(b)) || sign * compare(a, b));
    body.append(...rows.map(([, row]) => row));
    fold();
  });
  if (!all) {
    const button = document.createElement('button');
    button.className = 'all';
    const name = () => { button.textContent = all ? `${limit} rows` : `all ${body.rows.length} rows`; };
    button.onclick = () => { all = !all; name(); fold(); };
    name();
    table.parentNode.after(button);
    // What is printed is complete.
    addEventListener('beforeprint', () => { for (const row of body.rows) row.hidden = false; });
    addEventListener('afterprint', fold);
    fold();
  }
}

// What is folded is printed, too.
addEventListener('beforeprint', () => { for (const part of document.querySelectorAll('details')) part.open = true; });

// Charts take the page's colours, so that light and dark need no second drawing.
const text = { labelColor: 'currentColor', titleColor: 'currentColor', labelFontSize: 12, titleFontSize: 12, titleFontWeight: 'normal' };
const look = {
  background: null,
  font: 'system-ui, sans-serif',
  autosize: { type: 'fit-x', contains: 'padding' },
  axis: { ...text, gridColor: '#8884', domainColor: '#8888', tickColor: '#8888' },
  axisXQuantitative: { tickCount: { signal: 'ceil(width / 90)' } },
  legend: text,
  view: { stroke: null },
};

// A box for each line shows and hides it: the charts leave out the names in their parameter `hidden`.
const toggles = (figure, view) => {
  const boxes = [...figure.querySelectorAll('.keys input')];
  for (const box of boxes) {
    box.onchange = () => view.signal('hidden', boxes.filter(box => !box.checked).map(box => box.value)).runAsync();
  }
};

const draw = async figure => {
  const spec = JSON.parse(figure.querySelector('script').textContent);
  const { view } = await vegaEmbed(figure.querySelector('.plot'), spec, {
    mode: 'vega-lite',
    renderer: 'svg',
    logLevel: vega.Error,
    config: look,
    defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
    actions: { export: true, source: false, compiled: false, editor: false },
  });
  toggles(figure, view);
};

(async () => {
  for (const figure of document.querySelectorAll('figure.chart')) {
    try {
      await draw(figure);
    } catch (error) {
      figure.querySelector('.plot').textContent = `This chart cannot be drawn: ${error.message}`;
      console.error(error);
    }
  }
  document.body.dataset.drawn = 'true';
})();
