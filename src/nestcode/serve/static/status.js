// Messages to the user, and errors of handlers.

export function say(message, isError = false) {
  const status = document.getElementById("status");
  status.textContent = message;
  status.classList.toggle("error", isError);
}

/** Run a handler of events; what it throws is shown. */
export const guarded = (work) => async (...given) => {
  try {
    await work(...given);
    if (document.getElementById("status").classList.contains("error")) say("");
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401) document.getElementById("login").hidden = false;
    say(error.message, true);
  }
};
