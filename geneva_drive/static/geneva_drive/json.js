/* Turns JSON on the page into the editor that django-json-widget ships. Where it is not installed, JSON stays text.

   Its own widget cannot be used under `default-src 'self'`: its template has an inline script and inline styles. */
"use strict";
(() => {
  const editorAddress = document.currentScript.dataset.editor;

  const parsed = (text) => {
    try {
      return JSON.parse(text);
    } catch (error) {
      return undefined; /* not JSON: leave it as text, for its author to fix */
    }
  };

  /* While it loads, the editor adds a style element for its colour picker, which we do not offer. A strict
     Content-Security-Policy refuses that and logs an error, so the editor gets an inert element instead. */
  const load = (then) => {
    const create = Document.prototype.createElement;
    document.createElement = (name, ...rest) =>
      create.call(document, String(name).toLowerCase() === "style" ? "template" : name, ...rest);
    const script = create.call(document, "script");
    script.src = editorAddress;
    script.addEventListener("load", () => {
      delete document.createElement;
      then();
    });
    script.addEventListener("error", () => {
      delete document.createElement;
    });
    document.head.append(script);
  };

  const edit = (textarea) => {
    const value = parsed(textarea.value || "null");
    if (value === undefined) {
      return;
    }
    const holder = document.createElement("div");
    holder.className = "gd-editor";
    textarea.before(holder);
    const editor = new JSONEditor(holder, {
      mode: "tree",
      modes: ["tree", "text"],
      colorPicker: false,
      onChange: () => {
        try {
          textarea.value = editor.getText();
        } catch (error) {
          /* incomplete; the server will say what is wrong */
        }
      },
    });
    editor.set(value);
    textarea.hidden = true;
  };

  const view = (text) => {
    const value = parsed(text.textContent);
    if (value === null || typeof value !== "object") {
      return;
    }
    const build = () => {
      const holder = document.createElement("div");
      holder.className = "gd-viewer";
      text.before(holder);
      const options = { mode: "view", mainMenuBar: false, navigationBar: false, colorPicker: false };
      const editor = new JSONEditor(holder, options);
      editor.set(value);
      editor.expandAll();
      text.hidden = true;
    };
    const folded = text.closest("details");
    if (folded === null || folded.open) {
      build();
    } else {
      folded.addEventListener("toggle", build, { once: true });
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    const textareas = document.querySelectorAll("textarea.gd-json-edit");
    const texts = document.querySelectorAll("pre.gd-json");
    if (textareas.length + texts.length > 0) {
      load(() => {
        textareas.forEach(edit);
        texts.forEach(view);
      });
    }
  });
})();
