// Keeps a screen up to date: events of the server replace the parts that changed. Without this script every screen works, too.
const live = document.getElementById('live');
const at = document.getElementById('at');
const pause = document.getElementById('pause');
const address = document.body.dataset.events;
let source, paused = false, seen = Date.now();

// key finds an element again after its part was replaced.
const key = e => e && e.closest('main') ? [e.tagName, e.id || e.getAttribute('href') || e.getAttribute('name') || e.textContent] : null;

function swap(html) {
  const next = document.createElement('template');
  next.innerHTML = html;
  const main = document.getElementById('main');
  const focused = key(document.activeElement);
  const parts = new Map([...next.content.children].filter(e => e.id).map(e => [e.id, e]));
  for (const part of main.querySelectorAll('[id]')) {
    const other = next.content.getElementById(part.id);
    if (!other || part.querySelector('[id]') || part.outerHTML === other.outerHTML) continue;
    if (part.contains(document.activeElement) && document.activeElement.matches('input,textarea,select')) continue; // somebody is typing
    part.replaceWith(other.cloneNode(true));
  }
  if ([...parts.keys()].some(id => !document.getElementById(id))) main.replaceChildren(...next.content.childNodes);
  if (focused && !document.activeElement.closest('main')) {
    const again = [...main.querySelectorAll(focused[0])].find(e => key(e)[1] === focused[1]);
    if (again) again.focus({preventScroll: true});
  }
  const h1 = main.querySelector('h1');
  if (h1 && h1.textContent !== document.body.dataset.said) document.body.dataset.said = h1.textContent;
}

function stale(text) {
  live.classList.add('stale');
  at.textContent = text;
}

function listen() {
  source = new EventSource(address);
  source.addEventListener('main', e => swap(e.data));
  source.addEventListener('at', e => {
    seen = Date.now();
    live.classList.remove('stale');
    at.textContent = e.data;
  });
  source.addEventListener('stale', e => stale(e.data + ', since ' + Math.round((Date.now() - seen) / 1000) + ' s; shown is older.'));
}

if (address) {
  listen();
  setInterval(() => {
    const age = Math.round((Date.now() - seen) / 1000);
    if (!paused && age > 6) stale('no news for ' + age + ' s ·');
    if (source.readyState === EventSource.CLOSED && !paused && age % 15 === 0) listen();
  }, 1000);
  pause.hidden = false;
  pause.addEventListener('click', () => {
    paused = !paused;
    pause.textContent = paused ? 'Go on' : 'Pause';
    live.classList.toggle('still', paused);
    if (paused) source.close(); else listen();
  });
}

// A button of a dangerous change works once the name is typed; the server checks it again.
for (const form of document.querySelectorAll('form[data-confirm]')) {
  const typed = form.querySelector('input[name=confirm]');
  const button = form.querySelector('button');
  const check = () => { button.disabled = typed.value !== form.dataset.confirm; };
  typed.addEventListener('input', check);
  check();
}

// A choice of a filter is sent at once.
for (const select of document.querySelectorAll('select[data-send]')) select.addEventListener('change', () => select.form.requestSubmit());
