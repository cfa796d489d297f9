// The search wants a worker, and browsers start none for a page that is read from the disk: an inner frame stands in.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.body.appendChild(document.createElement("iframe"))
      frame.hidden = true
      this.window = frame.contentWindow
      this.window.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = this.window.document.createElement("script")
      this.ready = new Promise(resolve => script.addEventListener("load", resolve))
      script.src = url
      this.window.document.head.append(script)
    }

    postMessage(data) {
      this.ready.then(() => this.window.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
