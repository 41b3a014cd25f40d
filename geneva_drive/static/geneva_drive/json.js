/* Turns JSON on the page into django-json-widget's editor. Without it, the text stays as it is. */
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  if (typeof JSONEditor === "undefined") {
    return;
  }
  document.querySelectorAll("textarea.gd-json-edit").forEach((textarea) => {
    let value;
    try {
      value = JSON.parse(textarea.value || "null");
    } catch (error) {
      return; /* the text stays for its author to mend */
    }
    const holder = document.createElement("div");
    holder.className = "gd-editor";
    textarea.before(holder);
    const editor = new JSONEditor(holder, {
      mode: "tree",
      modes: ["tree", "text"],
      onChangeText: (text) => { textarea.value = text; },
      onChange: () => {
        try {
          textarea.value = editor.getText();
        } catch (error) {
          /* half-written; the server says what is wrong */
        }
      },
    });
    editor.set(value);
    textarea.hidden = true;
  });
  document.querySelectorAll("pre.gd-json").forEach((text) => {
    let value;
    try {
      value = JSON.parse(text.textContent);
    } catch (error) {
      return;
    }
    if (value === null || typeof value !== "object") {
      return;
    }
    const build = () => {
      const holder = document.createElement("div");
      holder.className = "gd-viewer";
      text.before(holder);
      new JSONEditor(holder, { mode: "view", mainMenuBar: false, navigationBar: false }).set(value);
      text.hidden = true;
    };
    const folded = text.closest("details");
    if (folded) {
      folded.addEventListener("toggle", build, { once: true });
    } else {
      build();
    }
  });
});
