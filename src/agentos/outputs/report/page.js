(() => {
  const table = document.getElementById('items-table');
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const search = document.getElementById('items-search');
  const shown = document.getElementById('items-shown');
  const buttons = Array.from(document.querySelectorAll('[data-filter]'));
  const collator = new Intl.Collator(undefined, { numeric: true });

  const filter = () => {
    const text = search.value.toLowerCase();
    const states = buttons
      .filter((button) => button.getAttribute('aria-pressed') === 'true')
      .map((button) => button.dataset.filter);
    let count = 0;
    rows.forEach((row) => {
      const inState = states.length === 0 ? true : states.includes(row.dataset.state);
      const matches = inState ? row.textContent.toLowerCase().includes(text) : false;
      row.hidden = !matches;
      count += matches ? 1 : 0;
    });
    shown.textContent = count + ' of ' + rows.length + ' items';
  };

  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent : cell.dataset.value;
  };

  const sort = (head, column) => {
    const descending = head.getAttribute('aria-sort') === 'ascending';
    Array.from(head.parentNode.cells).forEach((other) => other.removeAttribute('aria-sort'));
    head.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
    const sign = descending ? -1 : 1;
    rows.sort((a, b) => sign * collator.compare(value(a, column), value(b, column)));
    rows.forEach((row) => body.append(row));
  };

  Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = head.textContent;
    head.textContent = '';
    head.append(button);
    button.addEventListener('click', () => sort(head, column));
  });
  buttons.forEach((button) => button.addEventListener('click', () => {
    button.setAttribute('aria-pressed', button.getAttribute('aria-pressed') === 'true' ? 'false' : 'true');
    filter();
  }));
  search.addEventListener('input', filter);
  document.getElementById('items-filter').hidden = false;
  filter();
})();
