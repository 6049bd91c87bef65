// Browsers start no Worker for a page from the disk, and the site's search is one: there its script runs in a hidden frame.
// A message is copied, as a Worker's is: the search changes the queries that it receives.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.receive = (data) => {
        const event = new MessageEvent("message", { data });
        this.onmessage?.(event);
        this.dispatchEvent(event);
      };
      this.frame.srcdoc = `<script>
        self.postMessage = (data) => frameElement.receive(structuredClone(data));
      </script><script src="${url}"></script>`;
      this.loaded = new Promise((done) => this.frame.addEventListener("load", () => done(this.frame.contentWindow)));
      document.documentElement.append(this.frame);
    }
    postMessage(data) {
      const copy = structuredClone(data);
      this.loaded.then((page) => page.dispatchEvent(new page.MessageEvent("message", { data: copy })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
