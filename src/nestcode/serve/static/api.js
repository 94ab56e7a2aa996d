// Requests to the server, with the token of this session, and errors in its words.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setToken(token) {
  sessionStorage.setItem("token", token);
}

export const hasToken = () => sessionStorage.getItem("token") !== null;

export async function request(path, options = {}) {
  const headers = new Headers(options.headers);
  if (hasToken()) headers.set("Authorization", `Bearer ${sessionStorage.getItem("token")}`);
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer. Is it still running?");
  }
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({ error: `status ${answer.status}` }));
  throw new Refused(answer.status, error);
}

export const get = async (path) => (await request(path)).json();

export async function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const answer = await request(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  const time = /dur=([\d.]+)/.exec(answer.headers.get("Server-Timing") ?? "");
  return { ...(await answer.json()), milliseconds: time && Number(time[1]) };
}
