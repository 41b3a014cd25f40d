/* After a reload, opens the same details and scrolls to the same place. */
"use strict";
(() => {
  const key = `geneva_drive:${location.pathname}`;
  const remember = () => {
    const open = [...document.querySelectorAll("[data-gd-keep-place] details[id][open]")].map((each) => each.id);
    sessionStorage.setItem(key, JSON.stringify({ open, y: window.scrollY }));
  };
  const restore = () => {
    const page = document.querySelector("[data-gd-keep-place]");
    if (page === null) {
      return;
    }
    window.addEventListener("pagehide", remember);
    const kept = JSON.parse(sessionStorage.getItem(key) || "null");
    if (kept === null) {
      return;
    }
    kept.open.forEach((id) => {
      const details = document.getElementById(id);
      if (details !== null) {
        details.open = true;
      }
    });
    if (!location.hash) {
      window.scrollTo(0, kept.y);
    }
  };
  document.addEventListener("DOMContentLoaded", restore);
})();
