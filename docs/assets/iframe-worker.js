// Browsers start no Worker for a page from the disk, and the site's search is one: there its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.worker = this;
      frame.srcdoc = `<script>
        self.postMessage = (data) => frameElement.worker.dispatchEvent(new MessageEvent("message", { data }));
      </script><script src="${url}"></script>`;
      this.loaded = new Promise((done) => frame.addEventListener("load", () => done(frame.contentWindow)));
      document.documentElement.append(frame);
    }
    postMessage(data) {
      this.loaded.then((page) => page.dispatchEvent(new page.MessageEvent("message", { data })));
    }
  };
}
