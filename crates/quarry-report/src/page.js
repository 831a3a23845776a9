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

// A table that is wider than the window says so.
for (const box of document.querySelectorAll('.scroll')) {
  new ResizeObserver(() => box.classList.toggle('more', box.scrollWidth > box.clientWidth + 1)).observe(box.firstElementChild);
}

// A link to a folded section opens it.
addEventListener('click', event => {
  const to = event.target.closest?.('a[href^="#"]')?.getAttribute('href');
  const folded = to && document.getElementById(to.slice(1))?.querySelector(':scope > details');
  if (folded) folded.open = true;
});

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

// A map: a pixel for each cell, which the style sheet enlarges. The pointer shows a cell and its row.
const drawMap = (figure, spec) => {
  const across = Math.max(...spec.rows.map(([, cells]) => cells.length));
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [across, spec.rows.length];
  canvas.style.height = `${spec.rows.length * Math.min(14, Math.max(2, Math.floor(480 / spec.rows.length)))}px`;
  const names = document.createElement('div');
  names.className = 'names';
  const step = Math.ceil(spec.rows.length / 16);
  spec.rows.forEach(([name], at) => {
    if (at % step) return;
    const label = document.createElement('span');
    label.textContent = name;
    label.style.top = `${100 * at / spec.rows.length}%`;
    names.append(label);
  });
  const says = document.createElement('p');
  says.className = 'note';
  says.textContent = 'The pointer shows a cell.';
  const boxes = [...figure.querySelectorAll('.keys input')];
  const kinds = new Map(spec.kinds.map((kind, at) => [kind.letter, { ...kind, box: boxes[at] }]));
  const context = canvas.getContext('2d');
  const paint = () => {
    const image = context.createImageData(across, spec.rows.length);
    const words = new Uint32Array(image.data.buffer);
    const colours = new Map([...kinds].filter(([, kind]) => kind.box.checked).map(([letter, { colour }]) => {
      const [r, g, b] = [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
      return [letter, (0xff << 24 | b << 16 | g << 8 | r) >>> 0];
    }));
    spec.rows.forEach(([, cells], row) => {
      for (let at = 0; at < cells.length; at++) words[row * across + at] = colours.get(cells[at]) ?? 0;
    });
    context.putImageData(image, 0, 0);
  };
  canvas.onpointermove = event => {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    const [at, row] = [(event.clientX - left) / width * across, (event.clientY - top) / height * spec.rows.length].map(Math.floor);
    const [name, cells, about] = spec.rows[row] ?? ['', '', ''];
    const kind = kinds.get(cells[at])?.name ?? 'no memory';
    says.textContent = `Row from ${name}, cell ${at + 1} of ${spec.cell}: ${kind}. ${about}`;
  };
  for (const box of boxes) box.onchange = paint;
  paint();
  figure.querySelector('.plot').append(names, canvas, says);
  figure.classList.add('map');
};

// A flame graph: a click on a frame gives it all the width, and one on the lowest frame shows all again.
const drawFlame = (figure, { frames }) => {
  const step = 20;
  const deepest = Math.max(...frames.map(([, depth]) => depth));
  const [, , , all] = frames[0];
  const bytes = n => {
    const power = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(n, 1)) / 10)));
    return `${(n / 1024 ** power).toFixed(power ? 1 : 0)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][power]}`;
  };
  const told = ([name, , , size]) => `${name}: ${bytes(size)}, ${(100 * size / all).toFixed(1)} %`;
  const box = document.createElement('div');
  box.className = 'frames';
  box.style.height = `${(deepest + 1) * step}px`;
  const says = document.createElement('p');
  says.className = 'note';
  const show = of => {
    const [, depth, left, width] = of;
    says.textContent = told(of);
    box.replaceChildren(...frames.filter(([, at, from, size]) => {
      const inside = from >= left && from + size <= left + width;
      return at < depth ? from <= left && from + size >= left + width : inside && size / width > 0.0008;
    }).map(frame => {
      const [name, at, from, size] = frame;
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = name;
      button.title = told(frame);
      button.style.left = `${at < depth ? 0 : 100 * (from - left) / width}%`;
      button.style.width = `${at < depth ? 100 : 100 * size / width}%`;
      button.style.bottom = `${at * step}px`;
      // Names have a colour each, between yellow and red.
      const hue = [...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt()) % 997, 7) % 46;
      button.style.background = `hsl(${12 + hue} 85% ${at < depth ? 86 : 70}%)`;
      button.onclick = () => show(frame);
      button.onpointerenter = button.onfocus = () => { says.textContent = told(frame); };
      return button;
    }));
  };
  show(frames[0]);
  figure.querySelector('.plot').append(box, says);
  figure.classList.add('flame');
};

const draw = async figure => {
  const spec = JSON.parse(figure.querySelector('script').textContent);
  if (spec.frames) return drawFlame(figure, spec);
  if (spec.kinds) return drawMap(figure, spec);
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
