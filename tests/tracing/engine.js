// Runs Perfetto's trace processor (the page's engine_bundle.js) without a browser:
//   node engine.js FOLDER REQUESTS REPLIES WANTED
// FOLDER has the bundle and its WebAssembly; REQUESTS are framed messages of its remote interface. Ends when
// WANTED messages were answered.
"use strict";
for (const kind of ["uncaughtException", "unhandledRejection"]) {
  process.on(kind, (error) => {
    fs.writeSync(2, String(error).slice(0, 500));
    process.exit(1);
  });
}
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [folder, requests, replies, wanted] = process.argv.slice(2);
const self = {location: {href: "file://" + folder + "/"}};
const port = {
  answers: [],
  postMessage(data) {
    this.answers.push(Buffer.from(data));
    if (this.answers.length === Number(wanted)) {
      fs.writeFileSync(replies, Buffer.concat(this.answers));
      process.exit(0);
    }
  },
};

class Request {  // enough of XMLHttpRequest for a file
  open(_method, url) { this.url = url; }
  send() {
    const data = fs.readFileSync(path.join(folder, path.basename(this.url)));
    this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.length);
    this.status = 200;
    if (this.onload) setImmediate(() => this.onload());
  }
}

const context = vm.createContext({
  self, console: {log() {}, warn: console.error, error: console.error}, XMLHttpRequest: Request,
  TypeError, RangeError, Error, WebAssembly, setTimeout, setInterval, clearTimeout, clearInterval, performance, URL, TextDecoder, TextEncoder, Uint8Array,
  Date, Promise, queueMicrotask, WorkerGlobalScope: function () {}, importScripts() {},
  crypto: require("crypto").webcrypto,
  fetch: async (url) => {
    const data = fs.readFileSync(path.join(folder, path.basename(String(url))));
    return new Response(data, {status: 200, headers: {"Content-Type": "application/wasm"}});
  },
});
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), context);
setTimeout(() => {
  self.onmessage({data: port});
  const data = fs.readFileSync(requests);
  port.onmessage({data: vm.runInContext("Uint8Array", context).from(data)});
}, 1500);
setTimeout(() => process.exit(2), 240000);
