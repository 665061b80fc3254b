// New elements of a page, with their attributes and children.

const withParts = (element, attributes, children) => {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};

export const svg = (name, attributes, ...children) =>
  withParts(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

export const html = (name, attributes, ...children) => withParts(document.createElement(name), attributes, children);
