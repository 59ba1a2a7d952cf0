// Preloaded into a peer's HTTP server, which would listen on every interface and on a fixed port: it gets
// the loopback interface and a free port, and prints which.
const { Server } = require("node:net");

const { listen } = Server.prototype;
Server.prototype.listen = function () {
  return listen.call(this, { host: "127.0.0.1", port: 0 }, () => console.log(`port ${this.address().port}`));
};
